"""Headrace: stream processing with the semantics of Apache Flink, for people who write Python and run Spark."""

import copyreg
import importlib
import sys
from importlib.metadata import version
from types import ModuleType
from typing import Any

import lazy_loader

# Spark starts a fresh Python for every source and every step: each loads what it needs, not the clients of all servers.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    # Read when first asked for: looking through installed packages takes some milliseconds.
    return version("headrace") if name == "__version__" else _load(name)


def _by_name(module: ModuleType) -> tuple[Any, tuple[str]]:
    return importlib.import_module, (module.__name__,)


# An author's function that says ``hr.`` takes this module along to Spark's workers. Loading names late has made it a
# module of a type that cloudpickle does not know.
copyreg.pickle(type(sys.modules[__name__]), _by_name)
