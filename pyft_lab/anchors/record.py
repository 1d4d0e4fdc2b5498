"""Records of published numbers (`data/anchors.toml`) and the check of one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum
from importlib import resources

from pydantic import BaseModel, ConfigDict, Field

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Status(str, Enum):
    """How a published number and ours agree."""

    REPRODUCED = "reproduced"
    CONSISTENT = "consistent"
    NOT_REPRODUCIBLE = "not reproducible"


class Anchor(BaseModel):
    """One published number.

    `ours` is what the formula gave when the record was written, and must give now. `tolerance` is
    how far it may lie from `published` to count as reproduced, `wide` to count as consistent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    source: str
    formula: str
    inputs: dict[str, float | list[float] | bool] = Field(default_factory=dict)
    unit: str = ""
    published: float
    tolerance: float = Field(ge=0)
    wide: float = Field(default=0, ge=0)
    ours: float
    ours_relative: float = Field(default=1e-4, gt=0)
    status: Status
    note: str = ""
    # Where `published` and `inputs` were read: "paper", or "notes" that were made of it before.
    transcribed_from: str = Field(default="notes", pattern="^(paper|notes)$")


@dataclass(frozen=True)
class Computed:
    """A value and the arithmetic behind it, one line each."""

    value: float
    steps: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Check:
    """An anchor, what it came to, and why it does not hold (empty if it does)."""

    anchor: Anchor
    computed: Computed
    found: Status
    problem: str

    @property
    def holds(self) -> bool:
        return not self.problem


def judge(anchor: Anchor, value: float) -> Status:
    """Say how a value agrees with what was published."""
    off = abs(value - anchor.published)
    if off <= anchor.tolerance:
        return Status.REPRODUCED
    return Status.CONSISTENT if off <= anchor.wide else Status.NOT_REPRODUCIBLE


def check(anchor: Anchor, computed: Computed) -> Check:
    """Compare a value with its record: the number itself, and the status that follows from it."""
    found = judge(anchor, computed.value)
    problem = ""
    if abs(computed.value - anchor.ours) > anchor.ours_relative * abs(anchor.ours):
        problem = f"computed [{computed.value:.6g}], the record has [{anchor.ours:.6g}]"
    elif found != anchor.status:
        problem = f"is [{found.value}], the record says [{anchor.status.value}]"
    return Check(anchor, computed, found, problem)


def load() -> list[Anchor]:
    """Return all records."""
    text = (resources.files("pyft_lab") / "data" / "anchors.toml").read_text()
    return [Anchor(**entry) for entry in tomllib.loads(text)["anchor"]]
