"""Read settings.toml into checked records."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TYPES = {"int": int, "float": float, "bool": bool, "choice": str, "text": str}
READERS = {"launcher", "agent", "client", "server", "program", "build", "tests"}
READERS |= {"softgpu", "flexccl"}
KEYS = {"name", "type", "default", "choices", "min", "max", "allowed", "help", "readers", "once"}
PREFIXES = {"PYFT_": "pyft", "SOFTGPU_": "softgpu", "FLEXCCL_": "flexccl"}
# Whose C++ reads it, by reader. What others read, Python reads.
CPP_PARTS = {"client": "pyft", "server": "pyft", "softgpu": "softgpu", "flexccl": "flexccl"}


class TableError(Exception):
    """The table has a mistake, which the text names."""


@dataclass(frozen=True)
class Setting:
    """One variable. Without a default, "unset" is a value of its own."""

    name: str
    type: str
    help: str
    readers: tuple[str, ...]
    default: int | float | bool | str | None
    choices: tuple[str, ...]
    least: int
    most: int | None
    told: str
    once: bool
    internal: bool

    @property
    def owner(self) -> str:
        """Return pyft, softgpu, flexccl, or others."""
        found = [part for prefix, part in PREFIXES.items() if self.name.startswith(prefix)]
        return found[0] if found else "others"

    @property
    def parts(self) -> set[str]:
        """Return the parts whose C++ reads it."""
        return {CPP_PARTS[reader] for reader in self.readers if reader in CPP_PARTS}

    @property
    def short(self) -> str:
        """Return CUT_EVERY of PYFT_CUT_EVERY."""
        return self.name if self.owner == "others" else self.name.partition("_")[2]

    @property
    def allowed(self) -> str:
        """Return what it may be, for a sentence that ends with `not ...`."""
        if self.told:
            return self.told
        if self.type == "bool":
            return "0 or 1"
        if self.type == "choice":
            return " or ".join(filter(None, (", ".join(self.choices[:-1]), self.choices[-1])))
        if self.most is not None:
            return f"a number from {self.least} to {self.most}"
        return "a positive number" if self.least else "a number"


def load(path: Path) -> list[Setting]:
    """Read and check the table."""
    settings = [_setting(raw) for raw in tomllib.loads(path.read_text())["setting"]]
    names = [one.name for one in settings]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TableError(f"two settings have the name {twice}")
    return settings


def _setting(raw: dict[str, Any]) -> Setting:
    name, kind = raw.get("name", "?"), raw.get("type")
    if surplus := raw.keys() - KEYS - {"internal"}:
        raise TableError(f"[{name}] has unknown keys {sorted(surplus)}")
    if kind not in TYPES:
        raise TableError(f"[{name}] has the type [{kind}], which is none of {sorted(TYPES)}")
    default, choices = raw.get("default"), tuple(raw.get("choices", ()))
    if default is not None and type(default) is not TYPES[kind]:
        raise TableError(f"[{name}] has the default [{default}], which is no {kind}")
    if (kind == "choice") != bool(choices) or (choices and default not in (None, *choices)):
        raise TableError(f"[{name}] has the choices {list(choices)} and the default [{default}]")
    if not raw.get("help") or (unknown := set(raw["readers"]) - set(READERS)):
        raise TableError(f"[{name}] has no help, or unknown readers {sorted(unknown)}")
    return Setting(
        name=name,
        type=kind,
        help=raw["help"],
        readers=tuple(raw["readers"]),
        default=default,
        choices=choices,
        least=raw.get("min", 1 if default or (default is None and kind == "int") else 0),
        most=raw.get("max"),
        told=raw.get("allowed", ""),
        once=raw.get("once", False),
        internal=raw.get("internal", False),
    )
