"""What the Lease of a job says: which head decides, and for how long."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from pyft.hosts.head.elected import Refused

MOST_SECONDS = 3600


@dataclass(frozen=True)
class Record:
    """The spec of a Lease. `transitions`: how often another head was elected."""

    holder: str = ""  # nothing: whichever head asks first is elected
    seconds: int = 0  # that it holds from its last renewal
    renewed: str = ""  # when, by the holder's clock: only the holder reads it as a time
    acquired: str = ""
    transitions: int = 0

    @classmethod
    def of(cls, spec: dict[str, Any]) -> Record:
        """Read a spec, in which all but the first ones may be missing; raise Refused."""
        holder = spec.get("holderIdentity") or ""
        seconds, transitions = spec.get("leaseDurationSeconds") or 0, spec.get("leaseTransitions")
        renewed, acquired = spec.get("renewTime") or "", spec.get("acquireTime") or ""
        numbers = (seconds, transitions := transitions or 0)
        texts = (holder, renewed, acquired)
        if not all(type(one) is int and one >= 0 for one in numbers) or not all(
            isinstance(one, str) for one in texts
        ):
            raise Refused("the Lease's contents are none")
        return cls(holder, min(seconds, MOST_SECONDS), renewed, acquired, transitions)

    def spec(self) -> dict[str, Any]:
        """Return it as Kubernetes takes it, which has no empty texts."""
        named = {"holderIdentity": self.holder, "renewTime": self.renewed}
        named |= {"acquireTime": self.acquired}
        texts = {name: text for name, text in named.items() if text}
        numbers = {"leaseDurationSeconds": max(1, self.seconds)}
        return texts | numbers | {"leaseTransitions": self.transitions}


def stamp(seconds: float) -> str:
    """Return a time as Kubernetes writes it, with microseconds."""
    at = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
