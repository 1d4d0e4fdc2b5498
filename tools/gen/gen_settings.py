"""Generate what reads the environment from settings.toml: `gen_settings.py --root .`.

All of it is kept in git: the soft GPU and flexccl stay parts that build from their own folders
alone. tests/gen and tools/check/settings.py say when a file is stale.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import emit_settings
import settings_table

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "settings.toml"
HEADERS = {
    "pyft": "proxy/include/pyft/settings.h",
    "softgpu": "softgpu/core/settings.h",
    "flexccl": "flexccl/base/settings.h",
}


def kept(table: Path) -> dict[str, Callable[[], str]]:
    """Return what is made of the table, by path from the root."""
    settings = settings_table.load(table)
    files: dict[str, Callable[[], str]] = {
        path: lambda part=part, path=path: emit_settings.emit_header(settings, part, path)
        for part, path in HEADERS.items()
    }
    files["pyft/settings.py"] = lambda: emit_settings.emit_python(settings)
    files["docs/env-vars.md"] = lambda: emit_settings.emit_docs(settings)
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="write the files there")
    root = parser.parse_args().root
    try:
        for path, emit in kept(TABLE).items():
            (root / path).write_text(emit())
    except settings_table.TableError as error:
        raise SystemExit(f"gen_settings: {error}") from None


if __name__ == "__main__":
    main()
