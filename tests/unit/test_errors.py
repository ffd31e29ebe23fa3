"""Errors: a stable id, one sentence, and the author's own line."""

from __future__ import annotations

import inspect
import traceback

import pytest

import headrace as hr
from headrace.errors import DefinitionError, HeadraceError, reported, user_line


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
    assert str(found) == str(raised.value)
    assert reported(RuntimeError("[STAGE_FAILED] no error of ours")) is None
