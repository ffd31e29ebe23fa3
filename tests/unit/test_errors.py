"""Errors: a stable id, one sentence, and the author's own line."""

from __future__ import annotations

import inspect
import traceback

import pytest

import headrace as hr
from headrace import errors
from headrace.errors import DefinitionError, HeadraceError, author_traceback, job_failure, reported, user_line


def test_an_error_has_its_id_in_front_and_as_an_attribute() -> None:
    error = HeadraceError("SOURCE_MISSING", "folder 'in' does not exist.")
    assert str(error) == "[SOURCE_MISSING] folder 'in' does not exist."
    assert error.id == "SOURCE_MISSING"


def test_a_definition_error_is_a_headrace_error() -> None:
    assert issubclass(DefinitionError, HeadraceError)


def test_a_definition_error_ends_with_the_line_of_the_author() -> None:
    here = inspect.currentframe()
    assert here is not None
    line = here.f_lineno + 2
    with pytest.raises(DefinitionError) as raised:
        hr.tumbling("hourly", size="no time at all", key="account")
    code = 'hr.tumbling("hourly", size="no time at all", key="account")'
    assert str(raised.value).endswith(f"(at test_errors.py:{line}: {code})")


def test_the_line_is_the_innermost_of_the_author_not_of_the_package() -> None:
    def authors_own_function() -> None:
        hr.tumbling("hourly", size="1 hour", key="account", offset="2 hours")

    with pytest.raises(DefinitionError, match=r'offset="2 hours"\)\)$'):
        authors_own_function()


def test_code_that_has_no_file_is_passed_over() -> None:
    found: dict[str, str | None] = {}
    exec(compile("found['line'] = user_line()", "<typed in>", "exec"), {"found": found, "user_line": user_line})
    line = found["line"]
    assert line is not None
    assert line.startswith("test_errors.py:")


def test_of_an_error_of_a_task_with_its_cause_the_driver_reports_the_error() -> None:
    def fails() -> None:
        try:
            raise HeadraceError("OUTPUT_COLUMN_UNKNOWN", "output 'main' has no column 'sayed'.")
        except HeadraceError as cause:
            raise HeadraceError("PROCESS_FAILED", f"step 'said', key 'a': {cause}") from cause

    with pytest.raises(HeadraceError) as raised:
        fails()
    text = "".join(traceback.format_exception(raised.value))
    found = reported(RuntimeError(f"An exception was thrown from the Python worker:\n{text}\n\tat org.apache.spark"))
    assert str(found).startswith(f"{raised.value}\nTraceback (most recent call last):\n")
    assert reported(RuntimeError("[STAGE_FAILED] no error of ours")) is None


JAVA = (
    "\n\n\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:645)\nCaused by: "
)
WORKER = 'Traceback (most recent call last):\n  File "/lib/site-packages/pyspark/worker.py", line 9, in main\n'
STEP = f'  File "{errors.__file__}", line 20, in _recover\n    method(row)\n'
OWN = '  File "/home/ann/pyspark/spend.py", line 7, in half\n    return 1 / amount\n           ~~^~~~~~~~\n'
DIVISION = "ZeroDivisionError: float division by zero"


def failed(python: str) -> RuntimeError:
    """What Spark says of a task: it says it twice, each time with what Java has to say."""
    said = f"Task 0 failed: org.apache.spark.api.python.PythonException: {python}{JAVA}"
    return RuntimeError(f"An error occurred while calling o7.save.\n: {said}{said}")


def test_of_an_error_in_the_authors_function_only_the_authors_frames_are_shown() -> None:
    shown = f"Traceback (most recent call last):\n{OWN}{DIVISION}"
    assert author_traceback(failed(f"{WORKER}{STEP}{OWN}{DIVISION}")) == shown
    assert str(job_failure("spend", 3, failed(f"{WORKER}{OWN}{DIVISION}"))).endswith(f"runs.\n{shown}")


def test_the_errors_that_led_to_the_authors_are_shown_and_the_step_that_stopped_is_told_first() -> None:
    python = (
        f"{WORKER}{OWN}KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        f"{WORKER}{STEP}{OWN}ValueError: no\n\nThe above exception was the direct cause of the following exception:\n\n"
        f"{WORKER}{STEP}headrace.errors.HeadraceError: [PROCESS_FAILED] step 'half' failed: ValueError: no"
    )
    assert str(reported(failed(python))) == (
        f"[PROCESS_FAILED] step 'half' failed: ValueError: no\n"
        f"Traceback (most recent call last):\n{OWN}KeyError: 'a'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        f"Traceback (most recent call last):\n{OWN}ValueError: no"
    )


def test_an_error_of_ours_that_a_client_caused_is_shown_without_its_traceback() -> None:
    client = '  File "/venv/lib/python3.11/site-packages/psycopg/connection.py", line 7, in connect\n'
    ours = f"{WORKER}{STEP}headrace.errors.HeadraceError: [FENCED] no."
    python = f"{WORKER}{STEP}{client}OperationalError: no\n\nThe above caused:\n\n{ours}"
    assert str(reported(failed(python))) == "[FENCED] no."


def test_a_failure_in_a_library_is_shown_with_its_last_traceback() -> None:
    python = f"{WORKER}TypeError: Return type is wrong"
    assert str(job_failure("spend", 3, failed(python))).endswith(f"runs.\n{python}")
