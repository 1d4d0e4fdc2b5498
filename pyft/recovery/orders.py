"""What is decided about ranks that go back together (rollback.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Commit:
    """The cut of a rank is its line."""

    id: int
    step: int


@dataclass(frozen=True)
class Abort:
    """The cut of a rank cannot be a line."""

    id: int
    step: int


@dataclass(frozen=True)
class Audit:
    """All of a set hold a cut: it is their line when what led to it has been audited."""

    id: int
    step: int
    entry: int
    since: int  # entry of the line before; 0: there is none


@dataclass(frozen=True)
class Unaudited:
    """A rank cannot wait for the audit of its cut."""

    id: int
    step: int


@dataclass(frozen=True)
class MadeAs:
    """Answers WANT_ID; without an id the rank has to make one."""

    id: int
    key: int
    made_as: str


@dataclass(frozen=True)
class Paced:
    """Another rank finds no room for what lies between snapshots if that is more than so many cuts."""

    id: int
    cuts: int


Order = Commit | Abort | Audit | Unaudited | MadeAs | Paced
