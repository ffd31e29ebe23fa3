"""A flow with state, late rows and dead letters whose checkpoint lies on a small disk of its own, which becomes full.

It mounts the disk, so it runs in a mount namespace of its own (``unshare --mount --map-root-user``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

import headrace as hr
from headrace.checkpoint.outages import outages
from headrace.checkpoint.storage import LocalStorage
from headrace.observe import history
from headrace.observe.committed import committed_rows

SIZE = 6 << 20
FILES, ACCOUNTS = 13, 500
PATIENCE_SECONDS = 120


def land(folder: Path, hour: int) -> None:
    """An hour of payments of many accounts, with a late one and a broken line."""
    rows = [{"account": f"a{number}", "amount": 1, "at": f"2025-01-01T{hour:02}:30:00Z"} for number in range(ACCOUNTS)]
    rows.append({"account": "late", "amount": hour, "at": f"2025-01-01T{max(0, hour - 4):02}:00:00Z"})
    hidden = folder / f".{hour}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows) + f"broken {hour}\n")
    hidden.rename(folder / f"{hour:02}.json")


def fill(file: Path) -> None:
    """Take all the room that there is."""
    with file.open("wb", buffering=0) as stream:
        size = 1 << 16
        while size:
            try:
                stream.write(bytes(size))
            except OSError:
                size //= 2


def wait_for(fact: Callable[[], object], what: str) -> None:
    """Until it is so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not fact():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)


def is_refused(start: Callable[[], object]) -> bool:
    """Whether a start says that the disk is full."""
    try:
        start()
    except hr.HeadraceError as problem:
        return problem.id == "DISK_FULL"
    return False


@hr.pipeline(name="spend")
def spend(spark: SparkSession, root: Path) -> None:
    """Windows by account and hour; late rows and dead letters stay in the checkpoint."""
    schema = "account STRING, amount BIGINT, at TIMESTAMP"
    rows = hr.read_files(spark, root / "in", format="json", schema=schema, name="rows", files_per_batch=1)
    step = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.side_output())
    hr.write("spend", rows.transform(hr.event_time("at")).transform(step), hr.to_files(root / "out"))


def main() -> None:
    """Fill the disk again and again while the flow runs; in the end everything is there once."""
    root = Path(sys.argv[1])
    landing, checkpoint, filler = (root / name for name in ("in", "disk/checkpoint", "disk/filler"))
    landing.mkdir()
    checkpoint.parent.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(checkpoint.parent)], check=True)
    spark = hr.spark_session("disk", master="local[2,4]", quick_start=True)
    start = partial(spend.start, checkpoint=checkpoint, spark=spark, root=root)

    def files_read() -> int:
        newest = history.newest(checkpoint / "spend")
        return 0 if newest is None else newest.total.sources["rows"].read // (ACCOUNTS + 2)

    fill(filler)
    assert is_refused(start)
    filler.unlink()
    running = start(mode=hr.micro_batch("50 milliseconds"))
    for hour in range(FILES - 1):
        if hour % 3 == 2:
            fill(filler)
            land(landing, hour)
            assert not running.wait(4), "the flow has ended on a full disk"
            assert files_read() == hour
            filler.unlink()
        else:
            land(landing, hour)
        # The history of a batch may be lost on a full disk; its rows are not.
        wait_for(lambda hour=hour: files_read() == hour + 1 or hour % 3 == 2, f"file {hour} is read")  # type: ignore[misc]
    assert outages(LocalStorage(checkpoint / "spend")) == []
    fill(filler)
    land(landing, FILES - 1)
    assert not running.wait(3)
    running.stop()
    assert is_refused(start)
    filler.unlink()
    spend.run(checkpoint=checkpoint, mode=hr.available_now(drain=True), spark=spark, root=root)
    check(root, checkpoint / "spend")
    print("everything is there once")
    spark.stop()


def check(root: Path, flow: Path) -> None:
    """A window of each account and hour; the rows of the first two hours' last account were in time."""
    found = committed_rows(root / "out")
    assert found.select("account", "window").unique().height == found.height == ACCOUNTS * FILES + 1
    assert found["spent"].sum() == ACCOUNTS * FILES + 1
    assert sorted(committed_rows(flow / "late" / "hourly")["amount"]) == list(range(2, FILES))
    letters = committed_rows(flow / "dead_letters")["raw"]
    assert sorted(letters) == sorted(f"broken {hour}".encode() for hour in range(FILES))


if __name__ == "__main__":
    main()
