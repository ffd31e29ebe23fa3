"""Any messages of any forms, read in any pieces, become what a plain reading one by one gives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.base.messages import Payloads
from tests.models.debezium import UNAVAILABLE, Change, changes_of
from tests.models.examples import examples
from tests.unit.connectors.debezium.recorded import change, decoder, postgres, with_schema, written

FIELDS = [{"type": "int64", "field": "id"}, {"type": "string", "field": "name"}]
NAMES = st.none() | st.text(st.characters(codec="utf-8"), max_size=5) | st.just(UNAVAILABLE)
# Columns that are not read, with the names of a message's own parts.
TEXTS = st.none() | st.sampled_from(["x", "u", '{"id": 9}', '"op":"c"', "}"])
ALIKE = dict.fromkeys(("op", "before", "after", "source", "schema", "payload"), TEXTS)
ROWS = st.fixed_dictionaries({"id": st.integers(0, 3) | st.just("one"), "name": NAMES}, optional=ALIKE).flatmap(
    lambda row: st.permutations(list(row.items())).map(dict)
)
SIDES = st.none() | ROWS
SOURCES = st.sampled_from([None, postgres(100)])
ENVELOPES = st.builds(change, st.sampled_from("crudtx"), before=SIDES, after=SIDES, source=SOURCES)
DELETED = st.sampled_from(["true", "false"])
ADDED = st.fixed_dictionaries({}, optional={"__op": st.sampled_from("crud"), "__deleted": DELETED})
FLAT = st.builds(lambda row, added: {**row, **added}, ROWS, ADDED)
BROKEN = st.sampled_from([b"{broken", b"[1]", b'"x"', b'{"schema":{},"payload":{x}'])
VALUES = st.one_of(
    st.none(),
    st.just(b"null"),
    BROKEN,
    ENVELOPES,
    FLAT,
    ENVELOPES.map(lambda envelope: with_schema(envelope, FIELDS)),
)
KEYS = st.none() | st.builds(lambda number: {"id": number}, st.integers(0, 3))


@examples(100)
@given(st.lists(st.tuples(KEYS, VALUES), max_size=12), st.sets(st.integers(0, 12)))
def test_any_split_of_any_messages_gives_the_rows_of_the_model(messages: list[tuple[Any, Any]], cuts: set[int]) -> None:
    sent = [(written(key), written(value)) for key, value in messages]
    bounds = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    rows: list[Change] = []
    dead: set[int] = set()
    skipped = 0
    for first, until in pairwise(bounds):
        part = sent[first:until]
        offsets = np.arange(first, until, dtype=np.int64)
        found = decoder().decode(Payloads.of([value for _, value in part], offsets, [key for key, _ in part], offsets))
        rows += found.rows.select("id", "name", "change", "__position").rows()
        dead |= set(found.dead["position"])
        skipped += found.skipped
    assert (rows, dead, skipped) == changes_of(sent)
