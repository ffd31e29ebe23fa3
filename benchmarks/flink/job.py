"""One Flink SQL job in Flink's own Python, which knows nothing of Headrace: ``python job.py <order.json>``."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

SAMPLE_SECONDS = 0.25


def main(file: Path) -> None:
    order = json.loads(file.read_text())
    port = _free_port()
    # How far the sources are is asked of the job's own web server, which by default looks every ten seconds only.
    watched = {"rest.bind-port": str(port), "metrics.fetcher.update-interval": str(int(SAMPLE_SECONDS * 1000))}
    configuration = Configuration()
    for name, value in {**order["settings"], **watched}.items():
        configuration.set_string(name, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    for statement in order["statements"]:
        tables.execute_sql(statement)
    started = tables.execute_sql(order["insert"])
    client = started.get_job_client()
    progress = _watch(f"http://127.0.0.1:{port}", str(client.get_job_id()), order["counted"])
    started.wait()
    Path(order["result"]).write_text(json.dumps({"progress": progress}))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _watch(server: str, name: str, counted: str) -> list[tuple[float, int, float]]:
    """When the sources had read how many rows, and what processor time the JVM had used by then, until the job ends.

    Its web server ends with it.
    """
    progress: list[tuple[float, int, float]] = []
    job = f"{server}/jobs/{name}"
    try:
        while (shown := _ask(job))["state"] in ("INITIALIZING", "CREATED", "RUNNING"):
            sources = [vertex["id"] for vertex in shown["vertices"] if _reads(vertex["name"], counted)]
            read = sum(_rows_read(job, source) for source in sources)
            if read > (progress[-1][1] if progress else 0):
                progress.append((time.monotonic(), read, _processor_seconds(server)))
            time.sleep(SAMPLE_SECONDS)
    except OSError:
        pass
    return progress


def _reads(name: str, table: str) -> bool:
    """Whether a part of the plan, by its name, reads a table; without one, any."""
    first = name.split(" -> ", maxsplit=1)[0]
    return first.startswith("Source: ") and (not table or first.endswith(f".{table}"))


def _rows_read(job: str, vertex: str) -> int:
    found = _ask(f"{job}/vertices/{vertex}/subtasks/metrics?get=numRecordsIn&agg=sum")
    return sum(int(metric["sum"]) for metric in found)


def _processor_seconds(server: str) -> float:
    # Nanoseconds of the whole process, in which the local cluster's job manager and task manager both live.
    return sum(int(metric["value"]) / 1e9 for metric in _ask(f"{server}/jobmanager/metrics?get=Status.JVM.CPU.Time"))


def _ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - Flink's own address
        return json.load(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
