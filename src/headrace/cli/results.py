"""``headrace show``: the results in a folder of ``hr.to_files``, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headrace.cli.checkpoints import AsJson
from headrace.connectors.files.results import Results
from headrace.observe.shown import ShownTable
from headrace.rendering import json_rows


def show(
    folder: Annotated[Path, typer.Argument(help="The folder given to hr.to_files(...).")],
    latest: Annotated[bool, typer.Option("--latest", help="Only the last version of each result.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many rows, the newest.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the rows that a pipeline has written with hr.to_files, the newest last.

    Example: headrace show tables/spend --latest --limit 50
    """
    results = Results(folder)
    rows = results.latest() if latest else results.newest(limit)
    newest, known = rows.tail(limit), rows.height if latest else results.rows
    if as_json:
        print(json.dumps([json.loads(row) for row in json_rows(newest)], indent=2, ensure_ascii=False))
        return
    # Values and names must not be read as markup.
    console = Console(markup=False, emoji=False, highlight=False)
    console.print(ShownTable.of(newest).as_rich())
    console.print(f"{known:,} rows" if known == newest.height else f"the last {newest.height:,} of {known:,} rows")
