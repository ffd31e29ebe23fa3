"""A standalone cluster of Spark on loopback."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from headrace.services.server import ANY, free_ports


@contextmanager
def spark_cluster(folder: Path, hosts: Sequence[str]) -> Iterator[str]:
    """A standalone cluster with a worker of one core at each address of loopback; gives the master's URL.

    Spark runs a task twice at once only on hosts that it can tell apart.
    """
    launcher = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    home = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}
    url, processes, log = f"spark://127.0.0.1:{free_ports([ANY])[0]}", [], folder / "cluster.txt"
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", url.rpartition(":")[2]]
    commands = [("127.0.0.1", [*master, "--webui-port", "0"])]
    for number, host in enumerate(hosts):
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0", "-c", "1", "-m", "1g"]
        commands.append((host, [*worker, "-d", str(folder / f"worker-{number}"), url]))
    try:
        with log.open("wb") as output:
            for host, command in commands:
                environment = {**os.environ, **home, "SPARK_LOCAL_IP": host}
                started = subprocess.Popen([launcher, *command], stdout=output, stderr=output, env=environment)
                processes.append(started)
        deadline = time.monotonic() + 180
        while log.read_text().count("Successfully registered with master") < len(hosts):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield url
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
