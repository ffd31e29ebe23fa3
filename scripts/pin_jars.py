"""Writes src/headrace/services/jars.toml anew: for what each set asks for, every jar it needs and its checksum."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import tomllib
from pathlib import Path

from headrace.services.jars import fetch

FILE = Path(__file__).parents[1] / "src/headrace/services/jars.toml"
HEADER = """\
# Every jar that Headrace can fetch, with its sha256. To change one, edit `wanted` and run `make jars`.
# `whole = true` takes along all that the wanted jars depend on; Spark brings the rest of the others.
"""


def resolved(wanted: list[str], whole: bool, folder: Path) -> dict[str, str]:
    """The checksum of every jar, by coordinate."""
    said = fetch(wanted, folder / "jars", transitive=whole, work=folder / "work")
    found = {}
    for file in sorted((folder / "jars").rglob("*.jar")):
        organisation, name, revision, file_name = file.relative_to(folder / "jars").parts
        if file_name != f"{name}-{revision}.jar":
            sys.exit(f"pin_jars: {file_name} is not its module's main jar, which jars.toml cannot name.")
        found[f"{organisation}:{name}:{revision}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    missing = [coordinate for coordinate in wanted if coordinate not in found]
    if missing:
        sys.exit(f"pin_jars: not found: {', '.join(missing)}\n{said}")
    return found


def main() -> None:
    """Resolve all sets, then replace the file."""
    text = HEADER
    for name, part in tomllib.loads(FILE.read_text()).items():
        print(f"pin_jars: {name}")
        with tempfile.TemporaryDirectory() as folder:
            found = resolved(part["wanted"], part["whole"], Path(folder))
        wanted = ", ".join(f'"{coordinate}"' for coordinate in part["wanted"])
        text += f"\n[{name}]\nwanted = [{wanted}]\nwhole = {str(part['whole']).lower()}\n\n[{name}.sha256]\n"
        text += "".join(f'"{coordinate}" = "{checksum}"\n' for coordinate, checksum in found.items())
    FILE.write_text(text)


if __name__ == "__main__":
    main()
