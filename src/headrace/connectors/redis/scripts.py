"""What Redis runs for the sink: each script is atomic, so a chunk and its mark are written together or not at all."""

from __future__ import annotations

from typing import Literal

Value = Literal["hash", "json"]

# Arguments of a chunk: epoch, generation, batch, chunk, chunks, rows, time to live in milliseconds (0: for ever),
# number of keys to delete; then the values. Keys: the mark, those to delete, those to set.

CLAIM = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. epoch) end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
return 1
"""

# A chunk that follows one which failed must not be marked, though both were sent together: GAP.
_GUARD = """
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'generation', 'batch', 'chunk')
local function before(field) return tonumber(stored[field] or '-1') end
local generation, batch, chunk = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if before(1) > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. stored[1]) end
if before(2) > generation or (before(2) == generation and before(3) > batch) then return 0 end
local done = -1
if before(2) == generation and before(3) == batch then done = before(4) end
if chunk <= done then return 0 end
if chunk > done + 1 then return redis.error_reply('GAP ' .. done) end
"""

_DELETE = """
local life, deletes, at = tonumber(ARGV[7]), tonumber(ARGV[8]), 9
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
  'chunks', ARGV[5], 'rows', ARGV[6])
return 1
"""


def chunk_script(value: Value, *, marked: bool) -> str:
    """The script that writes a chunk; unmarked it writes whatever it is given, as often as it is given it."""
    written = _DELETE + _SET[value]
    return _GUARD + written + _MARK if marked else written + "return 1"
