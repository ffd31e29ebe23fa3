"""Documents in a real OpenSearch: ids, versions, deletes, documents that do not fit."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import Any

import httpx
import polars as pl
import pytest

from headrace.connectors.base.sink import Delivered, Unreachable, WriterBatch
from headrace.connectors.opensearch.sink import OpenSearchSink, to_opensearch
from headrace.errors import HeadraceError
from headrace.services.service import Service
from tests.writers import Writer

WRITER = Writer("flow", epoch=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_INDICES = itertools.count()


@pytest.fixture
def index() -> str:
    """An index of its own."""
    return f"spend-{next(_INDICES)}"


def _documents(opensearch: Service, index: str) -> dict[str, Any]:
    httpx.post(f"{opensearch.url}/{index}/_refresh", timeout=60).raise_for_status()
    hits = (
        httpx.get(f"{opensearch.url}/{index}/_search?size=1000", timeout=60).raise_for_status().json()["hits"]["hits"]
    )
    return {hit["_id"]: hit["_source"] for hit in hits}


def _part(batch: int, generation: int = 0, *, changelog: bool = False) -> WriterBatch:
    return WRITER.batch(generation, batch, None, changelog=changelog)


def _prepared(opensearch: Service, index: str, rows: pl.DataFrame, id: str = "{account}") -> OpenSearchSink:
    sink = to_opensearch(opensearch.url, index, id=id)
    sink.prepare(rows.schema, [WRITER.name], WRITER.epoch)
    return sink


def test_documents_have_ids_by_template_and_deletes_delete(opensearch: Service, index: str) -> None:
    def changes(*rows: tuple[str | None, int, str]) -> pl.DataFrame:
        return pl.DataFrame([{"account": a, "window": {"start": NOON}, "n": n, "change": c} for a, n, c in rows])

    first = changes(("a", 1, "insert"), ('b/ü "x"', 2, "insert"), ("a", 3, "update_after"), (None, 9, "insert"))
    sink = _prepared(opensearch, index, first, "{account}|{window_start}")
    delivered = sink.deliver(first, _part(0, changelog=True))
    assert (delivered.written, delivered.superseded, delivered.already_marked) == (2, 1, 0)
    assert delivered.refused is not None
    assert delivered.refused["reason"].to_list() == ["ID_INVALID"]
    time = "2026-01-01T12:00:00"
    assert _documents(opensearch, index) == {
        f"a|{time}Z": {"account": "a", "window": {"start": f"{time}+00:00"}, "n": 3},
        f'b/ü "x"|{time}Z': {"account": 'b/ü "x"', "window": {"start": f"{time}+00:00"}, "n": 2},
    }
    second = changes(("a", 3, "delete"), ("never there", 0, "delete"))
    assert sink.deliver(second, _part(1, changelog=True)) == Delivered(2)
    assert list(_documents(opensearch, index)) == [f'b/ü "x"|{time}Z']


def test_a_batch_that_runs_again_changes_nothing_and_an_older_one_is_overtaken(opensearch: Service, index: str) -> None:
    older, newer = (pl.DataFrame({"account": ["a", "b"], "n": [n, n]}) for n in (1, 2))
    sink = _prepared(opensearch, index, older)
    assert sink.deliver(older, _part(0)) == Delivered(2)
    assert sink.deliver(newer, _part(1)) == Delivered(2)
    assert sink.deliver(newer, _part(1)) == Delivered(2)
    assert sink.deliver(older, _part(0)) == Delivered(0, already_marked=2)
    assert {document["n"] for document in _documents(opensearch, index).values()} == {2}
    assert sink.deliver(older, _part(0, generation=1)) == Delivered(2)
    assert {document["n"] for document in _documents(opensearch, index).values()} == {1}


def test_a_deleted_document_does_not_come_back_with_an_older_version(opensearch: Service, index: str) -> None:
    rows = pl.DataFrame({"account": ["a"], "n": [1], "change": ["insert"]})
    sink = _prepared(opensearch, index, rows)
    sink.deliver(rows, _part(0, changelog=True))
    sink.deliver(rows.with_columns(change=pl.lit("delete")), _part(1, changelog=True))
    assert sink.deliver(rows, _part(0, changelog=True)) == Delivered(0, already_marked=1)
    assert _documents(opensearch, index) == {}


def test_documents_that_do_not_fit_are_refused_and_the_others_are_written(opensearch: Service, index: str) -> None:
    mapping = {"mappings": {"properties": {"at": {"type": "date"}}}}
    httpx.put(f"{opensearch.url}/{index}", json=mapping, timeout=60).raise_for_status()
    rows = pl.DataFrame(
        {"account": ["a", "b", "c", "x" * 513, ""], "at": ["2026-01-01", "never", "2026-01-02", "", ""]}
    )
    sink = _prepared(opensearch, index, rows)
    for _ in range(2):
        delivered = sink.deliver(rows, _part(0))
        assert delivered.written == 2
        assert delivered.refused is not None
        assert delivered.refused["reason"].to_list() == ["ID_INVALID", "ID_INVALID", "DOCUMENT_REFUSED"]
        assert "failed to parse" in delivered.refused["detail"][2]
        assert json.loads(delivered.refused["raw"][2])["account"] == "b"
    assert sorted(_documents(opensearch, index)) == ["a", "c"]


def test_an_index_that_cannot_be_is_an_error_before_the_first_batch(opensearch: Service) -> None:
    rows = pl.DataFrame({"account": ["a"]})
    with pytest.raises(HeadraceError, match="INDEX_INVALID"):
        _prepared(opensearch, "Not Lower Case", rows)
    with pytest.raises(HeadraceError, match=r"TEMPLATE_COLUMN.*Existing columns: account"):
        _prepared(opensearch, "fine", rows, "{acount}")
    with pytest.raises(HeadraceError, match="COLUMN_RESERVED"):
        _prepared(opensearch, "fine", rows.with_columns(_id=pl.lit("a")))


@pytest.mark.full
def test_an_index_that_takes_no_writes_is_waited_for(opensearch: Service, index: str) -> None:
    rows = pl.DataFrame({"account": ["a"]})
    sink = _prepared(opensearch, index, rows)
    settings = f"{opensearch.url}/{index}/_settings"
    httpx.put(settings, json={"index.blocks.write": True}, timeout=60).raise_for_status()
    with pytest.raises(Unreachable, match=index):
        sink.deliver(rows, _part(0))
    httpx.put(settings, json={"index.blocks.write": None}, timeout=60).raise_for_status()
    assert sink.deliver(rows, _part(0)) == Delivered(1)
