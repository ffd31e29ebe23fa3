"""The batch record as JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.event_time.record import BatchRecord, TimeBounds

names = st.text("abcxyz_", min_size=1, max_size=5)
times = st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        BatchRecord,
        batch=st.integers(0, 10**10),
        clock=times,
        watermarks=st.dictionaries(names, times, max_size=3),
        time_bounds=st.dictionaries(names, st.builds(TimeBounds, times, times), max_size=3),
        wake=st.dictionaries(names, st.lists(st.integers(0, 500)).map(tuple), max_size=3),
        drain=st.booleans(),
    )
)
def test_every_record_survives_as_one_line_of_json(record: BatchRecord) -> None:
    text = record.to_json()
    assert "\n" not in text
    assert BatchRecord.from_json(text) == record


def test_a_record_carries_its_format() -> None:
    assert json.loads(BatchRecord(0, 0, {}, {}, {}, False).to_json())["format"] == 1
