"""Runs a frame process over the rows of many keys: in one call, unless a timer or a time to live ends between rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.event_time.record import TimeBounds
from headrace.event_time.strategy import END
from headrace.operators.event_time_buffer import TouchedKeys
from headrace.operators.process.context import MOST_IN_A_ROW, BatchContext
from headrace.operators.process.errors import FAILED, described
from headrace.operators.process.frame_process import EMIT, FIRED_AT, TIMER, FrameProcess, declared_timers
from headrace.operators.process.keyed_process import declared_states
from headrace.operators.process.state import CallError
from headrace.operators.rows import KEY_NUMBER
from headrace.schemas import MOMENT, spark_type

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_TIMER_FIELDS = ("name", "time", "payload", "clock")


class FrameRunner:
    """The keys of a slot in one batch: what is known of each, by its number, and the rows that it still has."""

    def __init__(
        self,
        process: FrameProcess,
        bounds: TimeBounds,
        output: Mapping[str, pl.DataType],
        touched: TouchedKeys,
        *,
        step: str,
        key: Sequence[str],
    ) -> None:
        self._process, self._bounds, self._step, self._output = process, bounds, step, output
        self._context = BatchContext(bounds)
        self._keys, self._count = [touched.keys[name] for name in key], touched.keys.height
        self._states, self._timers = declared_states(process), declared_timers(process)
        self._load(touched.states, touched.keys.height)
        self._emitted: list[tuple[Numbers, Numbers, pl.DataFrame]] = []
        """Of each call the numbers of the keys, the times, and the rows."""
        self._in_a_row = 0

    def run(self, rows: pl.DataFrame, numbers: Numbers, times: Numbers) -> None:
        """All rows, which lie in the order of their keys' numbers and of time, and everything that is due."""
        places = np.arange(len(numbers) + 1)
        # The first place of each key that has not been taken, and the one behind its last.
        self._place, self._stop = (
            np.searchsorted(numbers, np.arange(self._count), side=side) for side in ("left", "right")
        )
        ends = np.r_[self._expires_between(numbers, times), True] if self._lives else np.zeros(len(places), np.bool_)
        ends[-1] = True
        # Where the rows end that one call may see: behind it a state has expired.
        visible_until = np.minimum.accumulate(np.where(ends, places, len(numbers))[::-1])[::-1]
        self._rows, self._numbers, self._times = rows, numbers, times
        most = np.full(self._count, len(places))
        while True:
            open_keys = self._place < self._stop
            next_time = np.full(self._count, self._bounds.fire)
            next_time[open_keys] = times[self._place[open_keys]]
            if self._fire(next_time):
                continue
            if not open_keys.any():
                return
            taken = np.flatnonzero(open_keys)
            begin = self._place[taken]
            until = np.minimum(self._stop[taken], visible_until[begin + 1 if len(rows) else begin])
            self._take(taken, begin, np.minimum(until, begin + most[taken]), most)

    def _expires_between(self, numbers: Numbers, times: Numbers) -> Mask:
        """Whether a row comes so long after the one of its key before it that a state has expired."""
        late = np.zeros(len(numbers), np.bool_)
        late[1:] = (times[1:] - times[:-1] >= min(self._lives.values())) & (numbers[1:] == numbers[:-1])
        return late

    def _take(self, keys: Numbers, begin: Numbers, until: Numbers, most: Numbers) -> None:
        """Hand rows of keys to the process, and take what it says of them up to the first timer that fires between."""
        lengths = until - begin
        whole = int(lengths.sum()) == self._rows.height
        first = np.r_[0, np.cumsum(lengths)[:-1]]
        places = np.arange(self._rows.height) if whole else np.repeat(begin - first, lengths) + np.arange(lengths.sum())
        given = self._rows if whole else self._rows[places]
        numbers, times = self._numbers[places], self._times[places]
        frame = given.with_columns(self._columns(keys, times[first], numbers))
        result, output = self._called(self._process.on_rows, frame)
        timers = self._given_timers(result, numbers)
        # A row's timer that is due before the next one of the key fires first.
        after = first + lengths - 1
        following = np.minimum(places + 1, len(self._times) - 1)
        is_cut = (timers.min(axis=0, initial=END) <= self._times[following]) & (places + 1 < self._stop[numbers])
        cuts = np.flatnonzero(is_cut)
        if len(cuts):
            cut_keys, at = np.unique(np.searchsorted(keys, numbers[cuts]), return_index=True)
            last = after.copy()
            last[cut_keys] = np.minimum(after[cut_keys], cuts[at])
            cut = last < after
            # So that a key in which much fires is not given all its rows again and again.
            most[keys[cut]] = 2 * (last[cut] - first[cut] + 1)
            accepted = np.arange(len(places)) <= np.repeat(last, lengths)
            self._emit(output.filter(accepted), numbers[accepted], times[accepted])
        else:
            last = after
            self._emit(output, numbers, times)
        self._place[keys] = places[last] + 1
        self._keep(result[last], timers[:, last], keys, times[last], dict.fromkeys(self._written, ...))

    def _fire(self, until: Numbers) -> bool:
        """Fire one timer of each key in which one is due; whether there was any."""
        if not self._timers:
            return False
        earliest = self._timers_at.argmin(axis=0)
        at = self._timers_at[earliest, np.arange(len(earliest))]
        keys = np.flatnonzero((at <= until) & (at < END))
        if not len(keys):
            return False
        which, fired = earliest[keys], np.maximum(at[keys], self._now[keys])
        self._timers_at[which, keys] = END
        named = pl.Series(TIMER, self._timers, pl.String)[which]
        which_keys = (column[keys] for column in self._keys)
        frame = pl.DataFrame([*which_keys, named, pl.Series(FIRED_AT, fired).cast(MOMENT)])
        frame = frame.with_columns(self._columns(keys, fired, keys))
        result, output = self._called(self._process.on_timers, frame)
        timers = self._given_timers(result, keys)
        again = (timers != self._timers_at[:, keys]) & (timers < END)
        if (again & ((timers <= fired) | (self._bounds.fire == END))).any():
            self._in_a_row += 1
            if self._in_a_row > MOST_IN_A_ROW:
                raise HeadraceError(
                    "TIMER_LOOP",
                    f"step {self._step!r}: timers have set timers that fire at once {MOST_IN_A_ROW} times in a row, "
                    "which would never end. Set them for a later time, and not at the end of a drained run.",
                )
        self._emit(output, keys, fired)
        # A row writes every state; a timer writes those that it changes.
        changed = {name: result[name].ne_missing(frame[name]).to_numpy() for name in self._written}
        self._keep(result, timers, keys, fired, changed)
        return True

    def _load(self, stored: pl.DataFrame, keys: int) -> None:
        numbers = stored[KEY_NUMBER].to_numpy()
        row = np.full(keys, len(numbers))
        row[numbers] = np.arange(len(numbers))
        self._now = np.full(keys, self._bounds.before)
        self._values, self._written = {}, {}
        self._lives = {}
        """The time to live of each state that has one by event time."""
        for name, declared in self._states.items():
            column = stored[f"state.{name}"]
            self._values[name] = column.extend_constant(None, 1)[row].alias(name)
            config = declared.ttl_config
            if config.ttl is not None:
                written = stored[f"state.{name}@written"].fill_null(0).to_numpy()
                self._written[name] = np.r_[written, 0][row]
                if config.time == "event":
                    self._lives[name] = config.ttl
        self._timers_at = np.full((len(self._timers), keys), END)
        if self._timers:
            known = stored.select(KEY_NUMBER, "__timers").explode("__timers").drop_nulls().unnest("__timers")
            for number, name in enumerate(self._timers):
                own = known.filter((pl.col("name") == name) & ~pl.col("clock"))
                self._timers_at[number, own[KEY_NUMBER].to_numpy()] = own["time"].to_numpy()

    def _columns(self, keys: Numbers, now: Numbers, numbers: Numbers) -> list[pl.Series]:
        """States and timers of keys at a time of each, for rows with the numbers of their keys."""
        columns = []
        for name, values in self._values.items():
            if name in self._written:
                time = np.full(len(values), self._bounds.clock)
                if name in self._lives:
                    time[keys] = now
                ttl = self._states[name].ttl_config.ttl
                values = values.set(pl.Series(time - self._written[name] >= ttl), None)
            columns.append(values if len(numbers) == 0 else values[numbers])
        for name, at in zip(self._timers, self._timers_at, strict=True):
            found = pl.Series(name, at[numbers])
            columns.append(found.set(found == END, None).cast(MOMENT))
        return columns

    def _called(self, method: Callable[..., Any], frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What the process returns for a frame: states and timers after each row, and the rows as they are emitted."""
        try:
            result = method(frame, self._context)
            if not isinstance(result, pl.DataFrame) or result.height != frame.height:
                shape = f"{result.height} rows" if isinstance(result, pl.DataFrame) else repr(type(result).__name__)
                raise CallError(
                    f"[FRAME_MISALIGNED] it was given {frame.height} rows and returned {shape}. Return a Polars frame "
                    f"with the same rows in the same order; column {EMIT!r} says which of them are emitted."
                )
            given = (name for name in (*self._states, *self._timers) if name not in result.columns)
            result = result.with_columns(frame[name] for name in given)
            states = [_fitted(result[name], each.value_type, "STATE_TYPE") for name, each in self._states.items()]
            timers = [_fitted(result[name], MOMENT, "TIMER_TIME") for name in self._timers]
            return pl.DataFrame([*states, *timers]), self._chosen(result)
        except FAILED as error:
            summary, _, cause = described(error, method, None)
            called = f"{type(self._process).__name__}.{method.__name__}"
            raise HeadraceError("PROCESS_FAILED", f"step {self._step!r}: {called} failed: {summary}") from cause

    def _chosen(self, result: pl.DataFrame) -> pl.DataFrame:
        """The output's columns, and which of the rows are emitted."""
        if EMIT in result.columns:
            emit = _fitted(result[EMIT], pl.Boolean(), "OUTPUT_TYPE").fill_null(False)
        else:
            emit = pl.repeat(True, result.height, dtype=pl.Boolean, eager=True).alias(EMIT)
        if not emit.any():
            return emit.to_frame()
        missing = [name for name in self._output if name not in result.columns]
        if missing:
            raise CallError(
                f"[OUTPUT_COLUMN_MISSING] the frame has no column {missing[0]!r}, which output= declares. Its columns "
                f"are {', '.join(result.columns)}."
            )
        fitted = (_fitted(result[name], dtype, "OUTPUT_TYPE") for name, dtype in self._output.items())
        return pl.DataFrame([*fitted, emit])

    def _given_timers(self, result: pl.DataFrame, numbers: Numbers) -> npt.NDArray[np.int64]:
        """When each timer fires, for every row of a result."""
        found = [result[name].to_physical().cast(pl.Int64).fill_null(END).to_numpy() for name in self._timers]
        return np.stack(found) if found else np.empty((0, len(numbers)), np.int64)

    def _keep(
        self, last: pl.DataFrame, timers: npt.NDArray[np.int64], keys: Numbers, now: Numbers, written: Mapping[str, Any]
    ) -> None:
        """Take what is known of keys after their last rows, and for which of them each state was written."""
        if len(keys) == self._count:
            self._values = {name: last[name] for name in self._states}
        else:
            row = np.arange(self._count)
            row[keys] = len(row) + np.arange(len(keys))
            self._values = {name: pl.concat([self._values[name], last[name]])[row] for name in self._states}
        for name, which in written.items():
            time = now if name in self._lives else np.full(len(keys), self._bounds.clock)
            self._written[name][keys[which]] = time[which]
        self._timers_at[:, keys] = timers
        self._now[keys] = now

    def _emit(self, rows: pl.DataFrame, numbers: Numbers, times: Numbers) -> None:
        wanted = rows[EMIT]
        if wanted.any():
            chosen = wanted.to_numpy()
            self._emitted.append((numbers[chosen], times[chosen], rows.filter(wanted).drop(EMIT)))

    def output(self, time: str) -> pl.DataFrame:
        """What was emitted, each key's rows together and in order, with their time."""
        schema = {**self._output, time: MOMENT}
        if not self._emitted:
            return pl.DataFrame(schema=schema)
        numbers = np.concatenate([each for each, _, _ in self._emitted])
        times = pl.Series(time, np.concatenate([each for _, each, _ in self._emitted])).cast(MOMENT)
        rows = pl.concat([rows for *_, rows in self._emitted]).with_columns(times)
        return rows if len(self._emitted) == 1 else rows[np.argsort(numbers, kind="stable")]

    def stored(self) -> tuple[dict[str, pl.Series | Numbers], Mask]:
        """The state columns of every key, with the times at which it is due; and whether it has anything to store."""
        bounds = self._bounds
        due, due_clock = self._timers_at.min(axis=0, initial=END), np.full(self._count, END)
        columns: dict[str, Any] = {}
        alive = due < END
        for name, values in self._values.items():
            if name in self._written:
                expiry = self._written[name] + self._states[name].ttl_config.ttl
                by_event = name in self._lives
                values = values.set(pl.Series(expiry <= (bounds.fire if by_event else bounds.clock)), None)
                expiry[values.is_null().to_numpy()] = END
                due, due_clock = (
                    (np.minimum(due, expiry), due_clock) if by_event else (due, np.minimum(due_clock, expiry))
                )
                columns[f"state.{name}@written"] = self._written[name]
            columns[f"state.{name}"] = values
            alive |= values.is_not_null().to_numpy()
        return {**columns, "__due": due, "__due_clock": due_clock, "__timers": self._timer_lists()}, alive

    def _timer_lists(self) -> pl.Series:
        is_set = self._timers_at.T < END
        which = np.nonzero(is_set)[1]
        offsets = np.r_[0, np.cumsum(is_set.sum(axis=1))].astype(np.int32)
        names = pa.array(self._timers, pa.string()).take(pa.array(which)) if self._timers else pa.array([], pa.string())
        fields = [names, pa.array(self._timers_at.T[is_set]), pa.nulls(len(which), pa.string())]
        fields.append(pa.array(np.zeros(len(which), np.bool_)))
        structs = pa.StructArray.from_arrays(fields, names=_TIMER_FIELDS)
        return pl.Series(pa.ListArray.from_arrays(pa.array(offsets), structs))


def _fitted(values: pl.Series, dtype: pl.DataType, error: str) -> pl.Series:
    """A column in its declared type; numbers may be wider or narrower whole ones, and nothing else is converted."""
    given = values.dtype
    fits = given == pl.Null or (given.is_integer() and (dtype.is_integer() or dtype.is_float()))
    fits |= given.is_float() and dtype == pl.Float64
    fits |= isinstance(given, pl.Datetime) and isinstance(dtype, pl.Datetime) and given.time_zone == dtype.time_zone
    if given == dtype:
        return values
    try:
        if fits:
            return values.cast(dtype)
    except pl.exceptions.InvalidOperationError as reason:
        raise CallError(f"[{error}] column {values.name!r}: {reason}") from None
    wanted = spark_type(dtype, values.name).simpleString().upper()
    raise CallError(f"[{error}] column {values.name!r} is {given}, but {wanted} is declared.")
