"""Finding the pipeline that a verb was given as ``module:name`` or ``file.py:name``."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from headrace.errors import HeadraceError
from headrace.runtime.pipeline import Pipeline

Target = Annotated[str, typer.Argument(help="module:pipeline or file.py:pipeline.")]
Parameters = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="KEY=VALUE", help="An argument of the pipeline's function."),
]


def find_pipeline(target: str) -> Pipeline:
    """The pipeline that a target names; the name may be left out when there is only one."""
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    pipelines = {each: value for each, value in vars(module).items() if isinstance(value, Pipeline)}
    if name in pipelines:
        return pipelines[name]
    if not name and len(pipelines) == 1:
        return next(iter(pipelines.values()))
    found = ", ".join(pipelines) or "none; decorate a function with @hr.pipeline"
    what = f"no pipeline named {name!r}" if name else f"{len(pipelines)} pipelines"
    raise HeadraceError("PIPELINE_UNKNOWN", f"{place!r} has {what}. Existing pipelines: {found}.")


def read_parameters(given: Sequence[str] | None) -> dict[str, Any]:
    """Arguments for the pipeline's function: JSON where a value is JSON, else text.

    >>> read_parameters(["folder=in", "rate=100", 'account="7"'])
    {'folder': 'in', 'rate': 100, 'account': '7'}
    """
    parameters: dict[str, Any] = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not separator or not name.isidentifier():
            raise HeadraceError(
                "PARAMETER_UNREADABLE", f"-p {each!r} is not a name and a value. Write it as in -p folder=in."
            )
        try:
            parameters[name] = json.loads(value)
        except ValueError:
            parameters[name] = value
    return parameters


def _from_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise HeadraceError("TARGET_MISSING", f"file {str(file)!r} does not exist. Give a path as in jobs/spend.py.")
    loaded = sys.modules.get(file.stem)
    if loaded is not None:
        raise HeadraceError(
            "TARGET_NAME_TAKEN",
            f"file {str(file)!r} has the name of the module {loaded.__name__!r}, which is in use. Rename the file.",
        )
    _make_importable(file.absolute().parent)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise HeadraceError("TARGET_MISSING", f"file {str(file)!r} cannot be loaded as Python. Give a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and not f"{name}.".startswith(f"{error.name}."):
            raise
        raise HeadraceError(
            "TARGET_MISSING", f"there is no module {name!r}. Give module:pipeline, or a file as in jobs/spend.py:spend."
        ) from error


def _make_importable(folder: Path) -> None:
    """As ``python file.py`` does it; Spark's workers, which start later, find the same modules."""
    sys.path.insert(0, str(folder))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder) if not inherited else f"{folder}{os.pathsep}{inherited}"
