"""What becomes of a place whose host has no GPU left for one of its ranks.

    waits --a spare host has its image of the line--> all go back, and the place leaves (drains.py)
      |  ^                                            '--> that host claims it at once
      |  '--the copy does not arrive: the next spare host
      '--a spare host that has not: it gets a copy of the line's image from the host that waits

The programs live, and the log of what they have done, but what was in the GPU's memory is only where
the snapshots are: on this host. So no new line can be made, and all go back to the last one. Its
owner leaves it in order, so no lease has to end first. Until then nothing is lost: a GPU that an
operator brings ends the wait.
"""

from __future__ import annotations

from typing import Any

from pyft.hosts.head.decisions import Phase, Tell
from pyft.hosts.head.drains import Drains
from pyft.hosts.head.lines import MIRROR_S
from pyft.hosts.head.places import Place


class WithoutGpu(Drains):
    """Decides about places that wait for a GPU."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._sent_to: dict[int, tuple[str, float]] = {}  # by place: a spare host, last sign of it
        self._failed: dict[int, set[str]] = {}  # by place: those that did not take a copy
        self._happened: dict[int, list[int]] = {}  # as agents have said

    # ---- what agents say ----------------------------------------------------------------------

    def lacks_gpu(self, number: int, why: str, happened: list[int]) -> None:
        """Note that a place waits for a GPU, or not any more.

        `happened`: numbers of the faults that were asked for, which are not to come again.
        """
        self.facts.places[number].lacks_gpu = why
        self._happened[number] = happened
        if not why:
            self._forget_copies(number)

    def agent(self, now: float, number: int, restored: int) -> None:
        """Take an agent that has connected: it says next whether it lacks a GPU."""
        self.facts.places[number].lacks_gpu = ""
        super().agent(now, number, restored)

    def gone(self, now: float, number: int) -> None:
        """Note that the connection to a place's agent has ended."""
        self.facts.places[number].lacks_gpu = ""
        super().gone(now, number)

    def sending(self, now: float, image: int) -> None:
        """Note that copies of an image still come on."""
        super().sending(now, image)
        if image == self.facts.line:
            self._sent_to = {place: (name, now) for place, (name, _) in self._sent_to.items()}

    def unmirrored(self, number: int, image: int, spare: str, why: str) -> None:
        """Note that a copy of a place's image has not arrived on a host."""
        super().unmirrored(number, image, spare, why)
        if image == self.facts.line and self._sent_to.get(number, ("",))[0] == spare:
            self._not_taken(number, spare, why)

    def tick(self, now: float) -> None:
        """Look at places that wait, too."""
        if self.phase is Phase.RUN and not self.facts.failed and self.facts.line:
            self._look_at_waiting(now)
        super().tick(now)

    # ---- how that is decided ------------------------------------------------------------------

    def _is_due(self, now: float) -> bool:
        return not any(p.lacks_gpu for p in self.facts.places.values()) and super()._is_due(now)

    def _look_at_waiting(self, now: float) -> None:
        if self.pending or self._over():  # a later line may come; or nothing can go back
            return
        for place in self.facts.places.values():
            if not (place.lacks_gpu and place.claimed and place.present):
                continue
            taker = self._taker(now, place.number)
            if taker:
                self._leave_without(now, place)
                break
            if taker == "":
                self._send(now, place)

    def _leave_without(self, now: float, place: Place) -> None:
        """All go back to the line, and the place goes on at another host."""
        drain, why = self.facts.drain, f"place [{place.number}]: {place.lacks_gpu}"
        if drain and (drain.place != place.number or drain.to):
            self._undrain(f"{why}: it goes to a spare host at once")
        self._forget_copies(place.number)
        happened = self._happened.get(place.number, [])
        values = {"host": place.host, "place": place.number, "happened": happened}
        self._back(now, why, 0, lambda: self._write("leave", **values))

    def _send(self, now: float, place: Place) -> None:
        """Have a spare host get the image of the line, from the host that waits."""
        spares = {s.name: s for s in self.facts.spares.values() if s.port and s.lease > now}
        name, since = self._sent_to.get(place.number, ("", now))
        if name and name in spares and now < since + MIRROR_S:
            return
        if name:
            why = f"nothing has come for [{MIRROR_S:g}] s" if name in spares else "it is lost"
            self._not_taken(place.number, name, why)
        failed = self._failed.setdefault(place.number, set())
        if not set(spares) - failed:
            failed.clear()  # all are tried again
        for chosen in sorted(set(spares) - failed)[:1]:
            self._sent_to[place.number] = (chosen, now)
            values = {"number": self.facts.line, "mirrors": [spares[chosen].where]}
            self._say(("agent", place.number), "mirror", **values)
            self._tell(f"{place.lacks_gpu}; place [{place.number}]: host [{chosen}] gets its image")

    def _not_taken(self, number: int, name: str, why: str) -> None:
        del self._sent_to[number]
        self._failed.setdefault(number, set()).add(name)
        self._tell(f"host [{name}] has no copy of place [{number}]: {why}")

    def _forget_copies(self, number: int) -> None:
        self._sent_to.pop(number, None)
        self._failed.pop(number, None)

    def _tell(self, sentence: str) -> None:
        self._actions.append(Tell(sentence))
