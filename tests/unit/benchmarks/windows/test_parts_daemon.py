from __future__ import annotations

import subprocess
import sys


def test_every_part_of_a_task_that_is_timed_exists() -> None:
    # In a process of its own: what is timed stays so.
    code = "import benchmarks.windows.parts_daemon as daemon; daemon._watch()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
