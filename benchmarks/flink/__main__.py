"""Makes Flink's environment, and says where it is: ``python -m benchmarks.flink [--lock]``."""

from __future__ import annotations

import argparse

from benchmarks.flink.environment import environment, write_locks

parser = argparse.ArgumentParser(prog="python -m benchmarks.flink", description=__doc__)
parser.add_argument("--lock", action="store_true", help="choose versions anew, write requirements.lock and jars.toml")
if parser.parse_args().lock:
    write_locks()
found = environment()
print("\n".join(map(str, (found.python, *found.jars))))
