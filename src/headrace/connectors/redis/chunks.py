"""Chunks of changes that are the same when a batch runs again, and the Lua scripts that write them atomically."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import polars as pl

from headrace.connectors.base.sink import Mark
from headrace.connectors.redis.client import Value
from headrace.rendering import Template, as_text, flat, json_rows, json_values, last_changes, refused_rows

# Arguments of a chunk: epoch, generation, batch, chunk, chunks, rows, time to live in milliseconds (0: none),
# number of keys to delete, token, the batch of the mark as it was found; then the values. Keys: the mark, those to
# delete, those to set.

CLAIM = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. epoch) end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
return 1
"""

# The mark must still be as it was when it was judged, or be that of an earlier chunk of this batch.
# A chunk must not be marked when the one before it failed, though both were sent together: GAP.
_GUARD = """
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'generation', 'batch', 'token', 'chunk')
local function name(generation, batch, token)
  return (generation or '') .. ' ' .. (batch or '') .. ' ' .. (token or '')
end
if tonumber(stored[1] or '-1') > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. stored[1]) end
local found, chunk, done = name(stored[2], stored[3], stored[4]), tonumber(ARGV[4]), -1
if found == name(ARGV[2], ARGV[3], ARGV[9]) then
  done = tonumber(stored[5])
elseif found ~= ARGV[10] then
  return redis.error_reply('FORKED ' .. (stored[3] or '-1'))
end
if chunk <= done then return 0 end
if chunk > done + 1 then return redis.error_reply('GAP ' .. done) end
"""

_DELETE = """
local life, deletes, at = tonumber(ARGV[7]), tonumber(ARGV[8]), 11
for i = 2, deletes + 1 do redis.call('DEL', KEYS[i]) end
"""

_SET: dict[Value, str] = {
    # A row replaces the whole hash, so that a field that is null now does not keep an older value.
    "hash": """
for i = deletes + 2, #KEYS do
  local width = tonumber(ARGV[at])
  redis.call('DEL', KEYS[i])
  redis.call('HSET', KEYS[i], unpack(ARGV, at + 1, at + width))
  if life > 0 then redis.call('PEXPIRE', KEYS[i], life) end
  at = at + width + 1
end
""",
    "json": """
for i = deletes + 2, #KEYS do
  if life > 0 then redis.call('SET', KEYS[i], ARGV[at], 'PX', life) else redis.call('SET', KEYS[i], ARGV[at]) end
  at = at + 1
end
""",
}

_MARK = """
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'generation', ARGV[2], 'batch', ARGV[3], 'chunk', ARGV[4],
  'chunks', ARGV[5], 'rows', ARGV[6], 'token', ARGV[9])
return 1
"""


def chunk_script(value: Value, *, marked: bool) -> str:
    """The script that writes a chunk, with a mark or (at least once) without."""
    written = _DELETE + _SET[value]
    return _GUARD + written + _MARK if marked else written + "return 1"


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A writer's mark as it was found: its batch, and how far that has come."""

    mark: Mark | None = None
    chunk: int = 0
    chunks: int = 0

    @property
    def name(self) -> str:
        """The batch of the mark, as the script compares it."""
        mark = self.mark or Mark(0)
        parts = (mark.generation, mark.batch, mark.token)
        return " ".join("" if part is None else str(part) for part in parts)


CHUNK = 1_000
_KEY = "headrace.key"
Text = str | bytes
Change = tuple[str, Sequence[Text | int] | None]
"""The name of a key with its new values; None to delete it."""


@dataclass(frozen=True, slots=True)
class RedisChunk:
    """Changes of distinct keys, which one script writes."""

    deletes: Sequence[str]
    sets: Sequence[str]
    values: Sequence[Text | int]
    """For each key to set: its JSON, or the number of texts that follow and then field, value, field, value..."""

    @property
    def changes(self) -> int:
        return len(self.deletes) + len(self.sets)


@dataclass(frozen=True, slots=True)
class RedisChanges:
    """All changes of a writer's batch, in chunks sorted by key."""

    chunks: Sequence[RedisChunk]
    superseded: int
    refused: pl.DataFrame


def chunked(rows: pl.DataFrame, template: Template, value: Value, *, changelog: bool = False) -> RedisChanges:
    """The last change of each key, in chunks.

    >>> from headrace.rendering import parse_template
    >>> rows = pl.DataFrame({"id": [2, 1, 1], "n": [5, 6, 7]})
    >>> chunked(rows, parse_template("n:{id}"), "json").chunks
    [RedisChunk(deletes=[], sets=['n:1', 'n:2'], values=[b'{"id":1,"n":7}', b'{"id":2,"n":5}'])]
    """
    keyed = rows.with_columns(template.render(flat(rows)).alias(_KEY))
    keyless = rows.filter(keyed[_KEY].is_null())
    last = last_changes(keyed.filter(pl.col(_KEY).is_not_null()), [_KEY], changelog=changelog)
    changes: list[Change] = list(zip(last.upserts[_KEY], _values(last.upserts.drop(_KEY), value), strict=True))
    changes += [(name, None) for name in last.deletes[_KEY]]
    # When the batch runs again its rows may come in another order; sorted by key the chunks are the same.
    changes.sort(key=itemgetter(0))
    # If every row is refused there is one empty chunk, for the mark.
    chunks = [_chunk(changes[start : start + CHUNK]) for start in range(0, len(changes) or 1, CHUNK)]
    refused = refused_rows(keyless, "NO_KEY", f"a column of the key {str(template)!r} is null")
    return RedisChanges(chunks, last.superseded, refused)


def _chunk(changes: Sequence[Change]) -> RedisChunk:
    deletes = [name for name, values in changes if values is None]
    sets = [(name, values) for name, values in changes if values is not None]
    return RedisChunk(deletes, [name for name, _ in sets], [text for _, values in sets for text in values])


def _values(rows: pl.DataFrame, value: Value) -> Iterator[Sequence[Text | int]]:
    if value == "json":
        yield from zip(json_rows(rows), strict=True)
        return
    columns = flat(rows)
    for row in zip(*map(_texts, columns), strict=True):
        fields = [text for pair in zip(columns.columns, row, strict=True) if pair[1] is not None for text in pair]
        yield len(fields), *fields


def _texts(column: pl.Series) -> list[Text | None]:
    match column.dtype:
        case pl.Binary():
            return column.to_list()
        case kind if kind.is_nested():
            return [None if text == b"null" else text for text in json_values(column)]
        case kind:
            return column.to_frame().select(as_text(pl.first(), kind)).to_series().to_list()
