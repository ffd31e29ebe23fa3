"""Prints what a reader of the code has to find their way through: modules, lines, repeated names, probes.

Run it at the root of a checkout: ``python scripts/code_facts.py`` prints a table, with ``--json`` the same as JSON, and
with ``--names`` the long modules and functions, the longest first.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path("src/headrace")
SMALL = 60
LONG_MODULE = 300
LONG_FUNCTION = 40
# getattr with a default, or of a step, sink or operator: asking at run time what the type should say.
PROBE = re.compile(r"getattr\([a-z_.\[\]]*(?:step|sink|operator|earlier)[a-z_.\]]*,")
PLAN_TEXT = re.compile(r"(?:analyzed|optimizedPlan|logical|queryExecution)\(\)\.toString\(\)")
UNTYPED = "dict[str, Any]"
FACTS = ("graph", "event_time", "observe", "runtime", "plan", "wheel")


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def importers(known: dict[str, Path]) -> dict[str, set[str]]:
    """Which modules import each module."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, file in known.items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace"):
                target = (node.module or "").removeprefix("headrace").removeprefix(".")
                for each in (target, *(f"{target}.{alias.name}".strip(".") for alias in node.names)):
                    if each in known:
                        found[each].add(name)
    return found


def functions(known: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """All functions and methods by module, name and first line, with their number of lines."""
    for file in known.values():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{file}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def longest(lines: Iterable[tuple[str, int]], *, over: int) -> dict[str, int]:
    """Those of more than so many lines, the longest first."""
    return {name: count for name, count in sorted(lines, key=lambda item: -item[1]) if count > over}


def long_ones(known: dict[str, Path]) -> dict[str, dict[str, int]]:
    """The modules and functions that a reader may find too long, with their lines."""
    lines = [(str(file), len(file.read_text().splitlines())) for file in known.values()]
    return {
        f"modules of more than {LONG_MODULE} lines": longest(lines, over=LONG_MODULE),
        f"functions over {LONG_FUNCTION} lines": longest(functions(known), over=LONG_FUNCTION),
    }


def facts() -> dict[str, object]:
    """Everything that is counted."""
    known = modules()
    texts = {name: file.read_text() for name, file in known.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    lines = {name: len(text.splitlines()) for name, text in texts.items()}
    imported_by = importers(known)
    folders: Counter[str] = Counter()
    for name, count in lines.items():
        folders[
            name.partition(".")[0] if name and (PACKAGE / name.partition(".")[0]).is_dir() else "(single modules)"
        ] += count
    classes = Counter(node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {
        "modules": len(known),
        "lines": sum(lines.values()),
        "lines by folder": dict(sorted(folders.items())),
        f"modules with one importer and {SMALL} lines or fewer": sum(
            len(imported_by[name]) == 1 and lines[name] <= SMALL and known[name].name != "__init__.py" for name in known
        ),
        "getattr probes of steps, sinks and operators": sum(len(PROBE.findall(text)) for text in texts.values()),
        "searches in plan text": sum(len(PLAN_TEXT.findall(text)) for text in texts.values()),
        f"{UNTYPED} in facts": sum(text.count(UNTYPED) for name, text in texts.items() if name.startswith(FACTS)),
        "class names that exist twice or more": sum(
            count > 1 for name, count in classes.items() if not name.startswith("_")
        ),
        "functions": len(list(functions(known))),
        **{what: len(found) for what, found in long_ones(known).items()},
    }


def main() -> None:
    """Print the facts, or the names behind some of them."""
    if "--names" in sys.argv:
        for what, found in long_ones(modules()).items():
            print(f"{what}: {len(found)}", *(f"{lines:5} {name}" for name, lines in found.items()), sep="\n")
        return
    counted = facts()
    if "--json" in sys.argv:
        print(json.dumps(counted, indent=2))
        return
    for name, value in counted.items():
        if isinstance(value, dict):
            for folder, count in value.items():
                print(f"| lines in {folder} | {count:,} |")
        else:
            print(f"| {name} | {value:,} |")


if __name__ == "__main__":
    main()
