"""When all places are held, which of their images belong together, and where copies of them are.

A hold that is late, a dump that fails and a copy that does not arrive cost an image, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyft.hosts.head import holders
from pyft.hosts.head.decisions import Decisions, Pending, Phase, Tell
from pyft.hosts.head.places import do_not_fit, share_a_log
from pyft.recovery.images import LEAST_S, MOST_PAUSE_S, PREPARE_S, TAKE_S, between_s, hold_s
from pyft.recovery.stillness import STILL_S

AHEAD, AHEAD_S = 2, 0.4  # steps from the order to the cut, and what it takes to arrive
PREPARED_S = PREPARE_S + 10.0  # for all places to say that they have a pre-dump, or none
MIRROR_S = 60.0  # for the next piece of an image to be elsewhere
STAY_S = 240.0  # for all of it, where all stand still until then


class Lines(Decisions):
    """Decides about images."""

    # ---- what agents say ----------------------------------------------------------------------

    def status(self, number: int, steps: int, step_s: float) -> None:
        """Note how far a place is, and how long a step takes it (0: not known)."""
        place = self.facts.places[number]
        place.steps, place.step_s = steps, step_s

    def prepares(self, number: int) -> None:
        """Note that the agent of a place, which has connected, can make pre-dumps."""
        self.facts.places[number].prepares = True

    def prepared(self, now: float, number: int, stood_s: float) -> None:
        """Note that a place has a pre-dump, or none; `stood_s`: for how long it stood still for it."""
        place = self.facts.places[number]
        place.prepared, place.stood_s = True, stood_s
        self._look_at_prepared(now)

    def held(self, now: float, number: int, step: int, lines: list[list[int]]) -> None:
        """Note that all of a place stand behind the cut of a step."""
        place = self.facts.places[number]
        if self.phase is not Phase.HOLD or step != self.step:
            return
        place.held, place.lines, place.still_since = True, lines, now
        places = self.facts.places.values()
        if not all(p.held for p in places):
            return
        if why := do_not_fit({p.number: p.lines for p in places}):
            self._pass_over(now, why)
            return
        self._write("image", number=self.facts.number + 1)
        chosen = self._chosen(now)
        self.phase, self._since = Phase.DUMP, now
        self.pending = Pending(self.facts.number, self.step, chosen, now)
        drain = self.facts.drain
        taken = bool(drain and drain.to in ("", *chosen[drain.place]))
        self._stays = taken and all(chosen.values())
        held_s = TAKE_S + (STAY_S if self._stays else 0.0)
        for place in places:
            where = [self.facts.spares[name].where for name in chosen[place.number]]
            values = {"number": self.facts.number, "step": self.step, "mirrors": where}
            self._say(("agent", place.number), "dump", **values, milliseconds=int(1000 * held_s))

    def still(self, now: float, number: int, step: int, why: str) -> None:
        """Note why a place is not held that only others can move, or that this is over."""
        place = self.facts.places[number]
        if self.phase is Phase.HOLD and step == self.step and not place.held:
            place.still_since, place.still_why = now if why else None, why

    def copied(self, now: float, number: int, image: int, logs: Sequence[str] = ()) -> None:
        """Note that a place's image is whole on its own host: when all are, all go on.

        `logs`: names of the files that it appends to.
        """
        if self.phase is not Phase.DUMP or image != self.facts.number:
            return
        places = self.facts.places
        places[number].copied, places[number].logs = True, list(logs)
        if why := share_a_log({p.number: p.logs for p in places.values() if p.copied}):
            self._pass_over(now, why)
            return
        if not self._are_copied():
            return
        stood_s = now - self._since + max(place.stood_s for place in places.values())
        self._next = now + (self.every or between_s(stood_s, self.mttf_s))
        if not self._stays:
            self._release()
        self._commit_if_whole()

    def passed_over(self, now: float, number: int, why: str) -> None:
        """Note that a place cannot be dumped, or has not come to the cut."""
        if self.phase in (Phase.HOLD, Phase.DUMP):
            self._pass_over(now, f"place [{number}]: {why}")

    def have(self, spare: str, number: int, image: int) -> None:
        """Note that a host has a whole copy of a place's image."""
        if spare in self.facts.spares and number in self.facts.places:
            self.facts.spares[spare].images.add((number, image))
        self._commit_if_whole()

    def sending(self, now: float, image: int) -> None:
        """Note that copies of an image still come on."""
        if self.pending and self.pending.number == image:
            self.pending.since = now

    def unmirrored(self, number: int, image: int, spare: str, why: str) -> None:
        """Note that a copy of a place's image has not arrived on a host."""
        if self.pending and self.pending.number == image:
            self._left_out(number, [spare], why)

    def look_at_image(self, now: float) -> None:
        """Begin an image that is due, and give up what is late."""
        if self.phase is Phase.RUN:
            if self.pending:
                self._look_at_pending(now)
            if self._prepares_until is not None:
                self._look_at_prepared(now)
            elif self._is_due(now):
                self._prepare(now)
        elif self.phase is Phase.HOLD and (in_vain := self._in_vain(now)):
            self._pass_over(now, in_vain)
        elif self.phase is Phase.HOLD and now > self._since + self._hold_s:
            late = [p.number for p in self.facts.places.values() if not p.held]
            why = f"within [{self._hold_s:.1f}] s places {late} do not stand at the step"
            self._pass_over(now, why)
        elif self.phase is Phase.DUMP:
            self._look_at_dump(now)

    # ---- how that is decided ------------------------------------------------------------------

    def _in_vain(self, now: float) -> str:
        """Say why a hold cannot come about: each place is held, or waits for one that is."""
        places = self.facts.places.values()
        since = [p.still_since for p in places if p.still_since is not None]
        if len(since) < len(places) or now < max(since) + STILL_S:
            return ""
        return next((f"place [{p.number}]: {p.still_why}" for p in places if not p.held), "")

    def _look_at_dump(self, now: float) -> None:
        most = STAY_S if self._stays and self._are_copied() else TAKE_S
        if self.pending and self._stays:
            self._look_at_pending(now)
        if self.phase is Phase.DUMP and now > self._since + most:
            self._pass_over(now, f"it has taken more than [{most:g}] s")

    def _release(self) -> None:
        """All go on: the image of each place is whole on its own host."""
        self.phase, self.passed, self._stays = Phase.RUN, 0, False
        self._say_all("release", why="", number=0)

    def _are_copied(self) -> bool:
        return all(p.copied for p in self.facts.places.values())

    def _is_made(self) -> bool:
        """Say whether the last image is whole at all places, where all may still stand still."""
        stays = self.phase is Phase.DUMP and self._stays and self._are_copied()
        return stays or self.phase is Phase.RUN

    def _is_due(self, now: float) -> bool:
        places = self.facts.places.values()
        ready = all(p.present and p.steps and p.code is None for p in places)
        soon = self._again if self.facts.drain else self._next
        return ready and not self.pending and now >= soon

    def _prepare(self, now: float) -> None:
        """Have those that can write pages while all run; the hold follows, whatever becomes of it."""
        self._prepares_until = now + PREPARED_S
        for place in self.facts.places.values():
            place.prepared, place.stood_s = not place.prepares, 0.0
            if place.prepares:
                self._say(("agent", place.number), "prepare")
        self._look_at_prepared(now)

    def _look_at_prepared(self, now: float) -> None:
        if self._prepares_until is None or self.phase is not Phase.RUN:
            return
        if not self._is_due(now):  # a place has ended, or has no agent
            self._prepares_until = None
            self._say_all("release", why="", number=0)
        elif now > self._prepares_until or all(p.prepared for p in self.facts.places.values()):
            self._hold(now)

    def _hold(self, now: float) -> None:
        self._prepares_until, places = None, self.facts.places.values()
        known = [p.step_s for p in places if p.step_s]
        ahead = AHEAD + math.ceil(AHEAD_S / min(known, default=math.inf))
        self.phase, self._since = Phase.HOLD, now
        self._hold_s = hold_s(ahead, max(known, default=0.0))
        self.step = max(p.steps for p in places) + ahead
        for place in places:
            place.held = place.copied = False
            place.still_since, place.still_why = None, ""
        self._say_all("hold", step=self.step, milliseconds=int(1000 * self._hold_s))

    def _pass_over(self, now: float, why: str) -> None:
        number = self.facts.number if self.phase is Phase.DUMP else 0
        self.phase, self.passed, self.passed_why = Phase.RUN, self.passed + 1, why
        self._stays = False
        if number:
            self.pending = None
            self._forget(number)
        self._next = self._again = now + min(MOST_PAUSE_S, LEAST_S * 2.0**self.passed)
        self._say_all("release", why=why, number=number)

    def _lacking(self, place: int) -> list[str]:
        """Return which of its hosts do not have the whole image of a place."""
        assert self.pending
        spares, image = self.facts.spares, (place, self.pending.number)
        names = self.pending.holders[place]
        return [name for name in names if name not in spares or image not in spares[name].images]

    def _is_elsewhere(self) -> bool:
        """Say whether the image that was made is on all hosts that are to have it."""
        assert self.pending
        return not any(self._lacking(place) for place in self.pending.holders)

    def _look_at_pending(self, now: float) -> None:
        """Leave out hosts that do not take their copies; a host may have come back with one."""
        assert self.pending
        late = now >= self.pending.since + MIRROR_S
        for place in list(self.pending.holders):
            for name in self._lacking(place) if self.pending else ():
                spare = self.facts.spares.get(name)
                if not spare or spare.lease <= now:
                    self._left_out(place, [name], "it is lost")
                elif late:
                    self._left_out(place, [name], f"nothing has come for [{MIRROR_S:g}] s")
        self._commit_if_whole()

    def _left_out(self, place: int, names: list[str], why: str) -> None:
        """Go on without these copies; the image is given up if it is the last one of a place."""
        assert self.pending
        of_place = self.pending.holders[place]
        for name in [one for one in names if one in of_place]:
            of_place.remove(name)
            if (place, name) not in self._told_out:
                self._told_out.add((place, name))
                what = f"host [{name}] has no copy of place [{place}]"
                self._actions.append(Tell(f"{what} at step [{self.pending.step}]: {why}"))
            if not of_place:
                return self._give_up(f"host [{name}] does not take it: {why}")
        return self._commit_if_whole()

    def _give_up(self, why: str) -> None:
        """The image whose copies travel never counts."""
        assert self.pending
        if self.phase is Phase.DUMP and self._stays:
            return self._pass_over(self.now, why)
        number, self.pending = self.pending.number, None
        self._say_all("drop", number=number, why=why)
        self._forget(number)
        return None

    def _forget(self, number: int) -> None:
        """Have hosts without a place drop their copies of an image, or they fill up with those."""
        for one in self.facts.spares.values():
            one.images = {image for image in one.images if image[1] != number}
        self._say_spares("drop", number=number)

    def _commit_if_whole(self) -> None:
        """The image that is made counts once all its copies are there."""
        if self.pending and self._is_made() and self._is_elsewhere():
            self._commit()

    def _commit(self) -> None:
        assert self.pending
        line, self.pending = self.pending, None
        places = {place.number: place.host for place in self.facts.places.values()}
        left, but = holders.survives(places, line.holders, self.topology, self.copies)
        names = {str(place): names for place, names in line.holders.items()}
        self._write(
            "line", number=line.number, step=line.step, holders=names, survives=left, but=but
        )
        self._told_out -= {(place, name) for place in places for name in line.holders[place]}
        self._say_all("keep", number=line.number)
        for one in self.facts.spares.values():
            one.images = {image for image in one.images if image[1] == line.number}
        self._say_spares("keep", number=line.number)

    def _chosen(self, now: float) -> dict[int, list[str]]:
        """Return which spare hosts get copies of which place."""
        alive = [s.name for s in self.facts.spares.values() if s.lease > now and s.port]
        places = {place.number: place.host for place in self.facts.places.values()}
        drain = self.facts.drain
        named = {drain.place: drain.to} if drain and drain.to in alive else {}
        return holders.choose(places, alive, self.topology, self.copies, named)
