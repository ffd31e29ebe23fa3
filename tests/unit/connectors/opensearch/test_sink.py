"""What an OpenSearch sink says of itself, and what can be wrong in its definition."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headrace.connectors.base.sink import TaskSink
from headrace.connectors.opensearch.sink import to_opensearch
from headrace.errors import DefinitionError
from headrace.secrets import secret


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("search:9200", {}, "URL_INVALID"),
        ("http://search", {"writers": 0}, "WRITERS_INVALID"),
        ("http://search", {"username": "ann"}, "LOGIN_INCOMPLETE"),
        ("http://search", {"id": "constant"}, "TEMPLATE_INVALID"),
    ],
)
def test_a_definition_that_cannot_work_is_an_error(url: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected):
        to_opensearch(url, "spend", **{"id": "{account}"} | options)


def test_passwords_are_never_shown() -> None:
    plain = to_opensearch("http://search/", "spend", id="{a}", username="ann", password="hunter2")
    in_url = to_opensearch("http://ann:hunter2@search", "spend", id="{a}")
    kept = to_opensearch("http://search", "spend", id="{a}", username="ann", password=secret(env="PW"))
    assert "hunter2" not in repr(plain) + repr(in_url) + plain.place + in_url.place
    assert repr(kept) == (
        "hr.to_opensearch('http://search', 'spend', id='{a}', username='ann', password=hr.secret(env='PW'))"
    )


def test_it_is_a_sink_that_travels_to_tasks() -> None:
    sink = to_opensearch("http://search", "spend", id="{account}:{window_start}")
    assert isinstance(sink, TaskSink)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert (sink.guarantee, sink.partition_by) == ("exactly_once", ("account", "window_start"))
