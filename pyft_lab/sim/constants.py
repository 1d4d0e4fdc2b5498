"""Constants of mechanisms and clusters, from `data/*.toml` or a user's file, with provenance."""

from __future__ import annotations

import sys
from functools import cache
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyft_lab.errors import SpecError
from pyft_lab.models import rates

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Span = tuple[float, float, float]  # value, low, high
SPANS = ("stall_s", "lag_s", "recover_s", "protect_s", "overhead")
KINDS = ("measured-cuda", "published", "assumed")


class Constants(BaseModel):
    """What one mechanism costs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    copies: int = 0
    distance: int = 0
    soft_hurts: bool = True
    stall_s: Span = (0, 0, 0)
    lag_s: Span = (0, 0, 0)
    recover_s: Span
    protect_s: Span = (0, 0, 0)
    overhead: Span = (0, 0, 0)
    provenance: dict[str, str] = Field(alias="from")

    def check(self, name: str) -> None:
        """Raise if a value has no provenance, or lies outside of its own bounds."""
        for span in SPANS:
            value, low, high = getattr(self, span)
            if not low <= value <= high:
                raise SpecError(f"[{name}].{span}: {value:g} is not in {low:g} to {high:g}")
            source = self.provenance.get(span, "")
            if high > 0 and not source.startswith(KINDS):
                raise SpecError(f"[{name}].from.{span} begins with none of {list(KINDS)}")


def read(name: str, path: Path | None = None) -> dict[str, dict]:
    """Return the tables of a shipped file, or of the user's in its place."""
    try:
        file = path or resources.files("pyft_lab") / "data" / name
        return tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SpecError(f"cannot read [{path or name}]: {error}") from error


@cache
def mechanisms(path: Path | None = None) -> dict[str, Constants]:
    """Return the constants of all mechanisms."""
    tables = read("mechanisms.toml", path)
    tables.pop("step", None)
    try:
        found = {name: Constants(**table) for name, table in tables.items()}
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(f"[{path}] {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    for name, constants in found.items():
        constants.check(name)
    return found


def step_s(path: Path | None = None) -> float:
    """Return the seconds of a step."""
    return float(read("mechanisms.toml", path).get("step", {}).get("step_s", [20])[0])


def rate_of(trace: str) -> tuple[float, str]:
    """Return a rate per 1000 node-days, and its source: published, or computed from such counts."""
    tables = read("traces.toml")
    if trace not in tables:
        raise SpecError(f"no trace [{trace}]: there are {sorted(tables)}")
    entry = tables[trace]
    if "faults" in entry:
        rate = rates.per_1000_node_days(entry["faults"], entry["days"], entry["gpus"])
        return rate, f"computed from counts that are {entry['from']}: {entry['where']}"
    return float(entry["per_1000_node_days"]), f"{entry['from']}: {entry['where']}"
