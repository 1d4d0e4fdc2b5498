"""How a place is moved from a host that is to be drained, at the next line.

    asked --all are held, dumped, and their copies elsewhere--> the line of all, where they still stand
      |                                                           | all go back to it: it costs no step
      '--cancelled, no spare, lost: nothing has happened          v
    over <--all have come back-- another host <--its host has ended all of it-- leaving
                                  '--lost, or cannot restore it--> back to its host, which has the image

It goes to whichever spare host can take it, or to the one that an operator has named. The host that
leaves keeps the image until all go on, as a spare host that has no other one. Each step is an entry
for the ledger before any host is told, so another head goes on from it.
"""

from __future__ import annotations

from typing import Any

from pyft.hosts.head.alone import Alone
from pyft.hosts.head.coordinator import HEARD
from pyft.hosts.head.decisions import ABSENT_S, Phase
from pyft.hosts.head.places import Drain, Place


class Drains(Alone):
    """Decides about hosts that are to be drained, one at a time."""

    _has_ended: set[int]  # places that are to leave, of which nothing runs any more
    _spare_at: float  # when there was a spare host

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._has_ended = set()
        self._spare_at = how.get("now", 0.0)

    # ---- the operator -------------------------------------------------------------------------

    def drain(self, now: float, host: str, to: str = "") -> str:
        """Begin to drain a host; return why not. Where that is under way already, all is well.

        `to`: the spare host that takes its place; nothing: whichever can.
        """
        if self.facts.drain and self.facts.drain.host == host:
            return self._asked_otherwise(self.facts.drain, to)
        places = [p for p in self.facts.places.values() if p.host == host]
        why = self._cannot_drain(now, host, places) or self._cannot_take(now, to)
        if why:
            return why
        self._write("drain", host=host, place=places[0].number, **({"to": to} if to else {}))
        self._spare_at = now
        return ""

    def cancel(self, now: float, host: str) -> str:
        """Call a drain off; return why not."""
        drain = self.facts.drain
        if not drain or drain.host != host:
            return f"host [{host}] is not being drained"
        if drain.left:
            return f"host [{host}] leaves place [{drain.place}] already: it cannot be called off"
        self._undrain("it was cancelled")
        return ""

    def _cannot_drain(self, now: float, host: str, places: list[Place]) -> str:
        facts = self.facts
        if facts.failed or self.phase is Phase.OVER:
            return f"the job has ended{facts.failed and ': '}{facts.failed}"
        if host in facts.spares:
            return f"host [{host}] has no place: there is nothing to move"
        if not places:
            return f"host [{host}] is none of this job: places are on {self._hosts()}"
        if len(places) > 1:
            return f"host [{host}] has places {[p.number for p in places]}: one can be moved only"
        if drain := facts.drain:
            return f"host [{drain.host}] is being drained: try again when that is over"
        if not places[0].claimed:
            return f"host [{host}] is taking place [{places[0].number}]: try again after that"
        if over := self._over():
            return f"places {over} have ended: nothing can go back to a line any more"
        return ""

    def _cannot_take(self, now: float, to: str) -> str:
        """Return why this host cannot take a place; nothing: why no host can."""
        if not self._is_taker_there(now, ""):
            return "no spare host is there to take its place: start `pyft host` on one"
        if not to or self._is_taker_there(now, to):
            return ""
        places = [p.number for p in self.facts.places.values() if p.host == to]
        if places:
            return f"host [{to}] is no spare host: it has place {places}"
        if to in self.facts.spares and self.facts.spares[to].lease > now:
            return f"host [{to}] takes no images: it has only that of the place which it has left"
        spares = sorted(s.name for s in self.facts.spares.values() if s.port and s.lease > now)
        return f"host [{to}] is none of this job's spare hosts: these are {spares}"

    @staticmethod
    def _asked_otherwise(drain: Drain, to: str) -> str:
        """Return why what is under way is not what is asked for now."""
        if to in ("", drain.to):
            return ""
        taker = f"host [{drain.to}]" if drain.to else "a spare host that is free"
        return f"place [{drain.place}] goes to {taker} already: call that off by --cancel first"

    def _hosts(self) -> list[str]:
        return sorted({p.host for p in self.facts.places.values() if p.host})

    def _over(self) -> list[int]:
        return [p.number for p in self.facts.places.values() if p.code is not None]

    # ---- what hosts say -----------------------------------------------------------------------

    def left(self, number: int, life: int) -> None:
        """Note that a host has ended all of the place that it is to leave."""
        place = self.facts.places[number]
        if place.leaving and place.life == life:
            self._has_ended.add(number)

    def spare(self, now: float, name: str, address: str, port: int) -> None:
        """Note a host without a place; without a port it has left one, of which nothing runs."""
        super().spare(now, name, address, port)
        if port or name not in self.facts.spares:
            return
        for place in self.facts.places.values():
            if place.leaving and place.host == name:
                self._has_ended.add(place.number)
        drain = self.facts.drain
        if not drain or drain.host != name:
            self._let_go(name)

    def done(self, number: int, code: int) -> None:
        """Take the end of a place's command, also where that is to go on elsewhere."""
        place, drain = self.facts.places[number], self.facts.drain
        if place.leaving:
            self._has_ended.add(number)
        elif drain and drain.left and drain.place == number and not self._is_back(place):
            self._write("unrestored", place=number, host=place.host)
            self._has_ended.add(number)
        else:
            super().done(number, code)

    def tick(self, now: float) -> None:
        """Look at what was asked for, too."""
        if self.phase is not Phase.OVER and not self.facts.failed:
            self._look_at_drain(now)
            self._look_at_ended(now)
        super().tick(now)

    # ---- how that is decided ------------------------------------------------------------------

    def _look_at_drain(self, now: float) -> None:
        """Give one up that cannot be any more."""
        drain = self.facts.drain
        if not drain or drain.left:
            return
        if self._is_taker_there(now, drain.to):
            self._spare_at = now
        taken = [p.number for p in self.facts.places.values() if drain.to and p.host == drain.to]
        if over := self._over():
            self._undrain(f"places {over} have ended: nothing can go back to a line any more")
        elif taken:
            self._undrain(f"host [{drain.to}] has taken place {taken}")
        elif now > self._spare_at + self.lease + ABSENT_S:
            spare = f"host [{drain.to}] is not" if drain.to else "no spare host is"
            self._undrain(f"{spare} there any more to take its place")

    def _look_at_ended(self, now: float) -> None:
        """Choose the next owner of a place of which nothing runs any more."""
        for number in sorted(self._has_ended):
            place = self.facts.places[number]
            if not place.leaving:
                self._has_ended.discard(number)
            elif taker := self._taker(now, number):
                self._has_ended.discard(number)
                self._choose(now, place, self.facts.spares[taker])
                self._take(place)

    def _undrain(self, why: str) -> None:
        assert self.facts.drain
        self._write("undrain", host=self.facts.drain.host, why=why)
        if self._stays and self.phase is Phase.DUMP and self._are_copied():
            self._release()  # else all are released when they are copied
        self._stays = False

    def _commit(self) -> None:
        """After the line for which all stand still, the place leaves."""
        super()._commit()
        if not self._stays:
            return
        drain, self._stays = self.facts.drain, False
        if drain and not drain.left and not self._over() and self._has_image(drain):
            self._leave(drain)
        else:
            self._release()

    def _leave(self, drain: Drain) -> None:
        self._back(
            *(self.now, f"host [{drain.host}] is drained", 0),
            lambda: self._write("leave", host=drain.host, place=drain.place),
        )

    def _look_back(self) -> None:
        super()._look_back()
        if self.phase is Phase.RUN:
            for name in [s.name for s in self.facts.spares.values() if not s.port]:
                self._let_go(name)

    def _left_out(self, place: int, names: list[str], why: str) -> None:
        """Without the copy on the host that is to take the place, its image is tried again."""
        drain = self.facts.drain
        if not (self._stays and drain and drain.place == place and drain.to in names):
            super()._left_out(place, names, why)
        elif self.pending:
            self._give_up(f"host [{drain.to}] does not take it: {why}")

    def _has_image(self, drain: Drain) -> bool:
        """Say whether the host that was named has the image of the line."""
        have = self._holders_of_line(self.now)[drain.place]
        return drain.to in ("", *have)

    def _taker(self, now: float, place: int) -> str | None:
        """Return what takes a place: the host that was named, or else the one that has left it.

        Where none was named the one that has left it is the last.
        """
        drain = self.facts.drain
        if not drain or drain.place != place or not drain.left:
            return super()._taker(now, place)
        left = self._has_left(now, drain)
        if not drain.to:
            taker = super()._taker(now, place)
            return left if taker == "" else taker
        if drain.to in self._holders_of_line(now + self.lease * HEARD)[place]:
            return drain.to
        if drain.to in self._holders_of_line(now)[place]:
            return None
        if left or now < self.facts.places[place].lease:
            return left or None  # it calls when all of it has ended there
        return super()._taker(now, place)

    def _has_left(self, now: float, drain: Drain) -> str:
        """Return the host that has left its place, if it can go on from its image."""
        left = self.facts.spares.get(drain.host)
        if not left or left.port or left.lease <= now:
            return ""
        return left.name if (drain.place, self.facts.line) in left.images else ""

    def _is_taker_there(self, now: float, to: str) -> bool:
        spares = [s.name for s in self.facts.spares.values() if s.port and s.lease > now]
        return to in spares if to else bool(spares)

    def _let_go(self, name: str) -> None:
        """A host that has left its place may end."""
        done, why = self.facts.drains.get(name, (False, "the head knows of no place that it left"))
        self._say(("spare", name), "over", code=int(not done), why=why)
