"""What a query's start costs: a fresh Python is asked for the state, and loads no more than that."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
from pyspark import cloudpickle

import headrace as hr
from headrace.wheel.processor import WheelProcessor

ASKED = """
import sys
from pyspark import cloudpickle

class Handle:
    def getMapState(self, name, key, value):
        print(name, end=" ")

cloudpickle.loads(sys.stdin.buffer.read()).init(Handle())
print("polars" in sys.modules)
"""


def test_a_fresh_python_tells_the_state_without_the_operator_and_what_it_is_made_of() -> None:
    schema = {"account": pl.String(), "amount": pl.Int64(), "at": pl.Datetime("us", "UTC")}
    step = hr.tumbling("hourly", size="1 hour", key="account").agg(spent="sum(amount)").late(hr.drop())
    processor = WheelProcessor(step.bind(schema, "at"), None)  # type: ignore[arg-type]
    sent = cloudpickle.dumps(processor)
    done = subprocess.run([sys.executable, "-c", ASKED], input=sent, capture_output=True, check=False)
    assert done.stdout.decode() == "pages_hourly False\n", done.stderr.decode()
