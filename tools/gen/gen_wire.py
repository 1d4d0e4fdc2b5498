"""Generate what both sides of a wire know from proxy/api/wire/*.toml.

`gen_wire.py --out BUILD/proxy/api/wire` writes the C++ headers there; `gen_wire.py --root .` writes what is
kept in git: modules of pyft/wire and pages of docs. tests/gen says when those are stale.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import emit_messages
import wire_messages

WIRE = Path(__file__).parents[2] / "proxy" / "api" / "wire"


def headers(wire: Path) -> dict[str, Callable[[], str]]:
    """Return what is made in each build, by name."""
    messages = wire_messages.load(wire / "messages.toml")
    return {"messages.h": lambda: emit_messages.emit_header(messages)}


def kept(wire: Path) -> dict[str, Callable[[], str]]:
    """Return what is kept in git, by path from the root."""
    messages = wire_messages.load(wire / "messages.toml")
    return {
        "pyft/wire/messages.py": lambda: emit_messages.emit_python(messages),
        "docs/messages.md": lambda: emit_messages.emit_docs(messages),
    }


def write(folder: Path, files: dict[str, Callable[[], str]]) -> None:
    for name, emit in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(emit())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wire", type=Path, default=WIRE, help="folder of the tables")
    parser.add_argument("--out", type=Path, help="write the C++ headers there")
    parser.add_argument("--root", type=Path, help="write there what is kept in git")
    args = parser.parse_args()
    try:
        if args.out:
            write(args.out, headers(args.wire))
        if args.root:
            write(args.root, kept(args.wire))
    except wire_messages.TableError as error:
        raise SystemExit(f"gen_wire: {error}") from None


if __name__ == "__main__":
    main()
