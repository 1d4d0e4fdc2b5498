"""What the head decides: when all places are held, which image counts, what takes a lost place.

    RUN --due--> HOLD --all held--> DUMP --all dumped and copied--> RUN, and its copies travel
     ^            |                  |          when all are elsewhere it is the line of all
     +------------+---passed over----+
     |
    BACK <-- a host, a program or a server is lost: all go back to the line, in a new round

Each decision is an entry for the ledger, before the messages that follow from it. A place is
claimed by what starts it, and only an unbroken lease lets it go on. Without input or output:
head.py does it.
"""

from __future__ import annotations

from collections.abc import Callable

from pyft.hosts.head import holders
from pyft.hosts.head.decisions import Phase
from pyft.hosts.head.lines import Lines
from pyft.hosts.head.places import Place, Spare
from pyft.recovery.images import LEAST_S, MOST_RESTORES

RESTORE_S = 180.0  # for a place to come back
CLAIM_S = 60.0  # for a chosen host to begin
HEARD = 0.5  # of the lease: a spare host that was heard since is taken


class Coordinator(Lines):
    """Decides about hosts: which has a place, and when all go back."""

    # ---- hosts: claims and leases -------------------------------------------------------------

    def claim(self, now: float, number: int, host: str, life: int) -> str:
        """Give a place to a host that wants to start it; return why not."""
        place = self.facts.places.get(number)
        if self.facts.failed:
            return f"the job has ended: {self.facts.failed}"
        if place is None:
            return f"place [{number}] does not exist: the job has [{len(self.facts.places)}]"
        first = not life and not place.life
        chosen = life and (place.host, place.life, place.claimed) == (host, life, False)
        if not first and not chosen:
            return f"place [{number}] is that of host [{place.host}], life [{place.life}]"
        entry = {"place": number, "host": host, "life": life or 1}
        self._write("claim", **entry)
        place.lease = now + self.lease
        return ""

    def renew(self, now: float, number: int, host: str, life: int) -> bool:
        """Lengthen a lease; say whether the place still is this host's."""
        place = self.facts.places.get(number)
        if place is None or self.facts.failed:
            return False
        if (place.host, place.life, place.claimed) != (host, life, True):
            return False
        place.lease = now + self.lease
        return True

    def spare(self, now: float, name: str, address: str, port: int) -> None:
        """Note a host without a place, or that it still lives."""
        for place in self.facts.places.values():
            if place.host == name and place.life and not place.claimed:
                return self._take(place)  # it has not heard so
        spare = self.facts.spares.setdefault(name, Spare(name, address, port))
        spare.address, spare.port, spare.lease = address, port, now + self.lease
        return None

    def done(self, number: int, code: int) -> None:
        """Take the end of a place's command."""
        place = self.facts.places[number]
        if place.code is not None:
            return
        self._write("done", place=number, code=code)
        if all(p.code is not None for p in self.facts.places.values()):
            self.phase = Phase.OVER
            self._say_spares("over", code=self.facts.exit_code, why="the job has ended")
        elif not self.facts.failed and (code or self.phase is Phase.BACK):
            self._fail(f"the command of place [{number}] has ended with [{code}]")

    # ---- agents -------------------------------------------------------------------------------

    def owns(self, number: int, life: int) -> bool:
        """Say whether a place is that of the owner with this number."""
        place = self.facts.places[number]
        return place.claimed and place.life == life

    def known_at(self, number: int, address: str) -> None:
        """Note the address of a place's agent; when all are known, programs may start."""
        places = self.facts.places
        were_known = all(place.address for place in places.values())
        places[number].address = address
        if all(place.address for place in places.values()):
            addresses = [places[one].address for one in range(len(places))]
            for one in [number] if were_known else places:
                self._say(("agent", one), "places", addresses=addresses)

    def passes_on(self, number: int, round: int) -> bool:
        """Say whether what the programs of a place say to others is of now."""
        now = self.phase is not Phase.BACK and round == self.facts.round
        return now and not self.facts.failed and self.facts.places[number].present

    def agent(self, now: float, number: int, restored: int) -> None:
        """Take an agent that has connected: tell it where the job is."""
        place = self.facts.places[number]
        place.prepares, place.prepared = False, True
        place.present, place.restored, place.lease = True, restored, max(place.lease, now)
        to = ("agent", number)
        if self.facts.failed:
            self._say(to, "fail", why=self.facts.failed)
        elif self.phase is Phase.BACK:
            if restored != self.facts.round:
                self._say_back(place)
            self._look_back()
        else:
            if self.phase in (Phase.HOLD, Phase.DUMP):
                self._pass_over(now, f"place [{number}] has a new agent")
            self._say(to, "release", why="", number=0)
            if self.pending and (lacking := self._lacking(number)):
                self._left_out(number, lacking, "the agent that sent it has died")

    def gone(self, now: float, number: int) -> None:
        """Note that the connection to a place's agent has ended."""
        self.facts.places[number].present = False
        if self.phase in (Phase.HOLD, Phase.DUMP):
            self._pass_over(now, f"place [{number}] has no agent")

    # ---- something is lost --------------------------------------------------------------------

    def lost(self, now: float, number: int, why: str) -> None:
        """A program or a server of a place has died: all go back."""
        place = self.facts.places[number]
        if self.phase is Phase.BACK and place.restored != self.facts.round:
            return  # it is about to be put back anyway
        self._back(now, f"place [{number}]: {why}", 1)

    def tick(self, now: float) -> None:
        """Look at leases and deadlines."""
        self.now = now
        if self.phase is Phase.OVER or self.facts.failed:
            return
        self._look_at_leases(now)
        self.look_at_image(now)
        if self.phase is Phase.BACK and now > self._since + RESTORE_S:
            late = [p.number for p in self.facts.places.values() if not self._is_back(p)]
            self._fail(f"places {late} have not come back within [{RESTORE_S:g}] s")

    # ---- ids of communicators -----------------------------------------------------------------

    def want_id(self, number: int, round: int, client: int, key: int, made_as: str) -> None:
        """Answer under which id a communicator is made: the first that asks makes one."""
        if round != self.facts.round:
            return  # of servers that are ended
        who = (number, client)
        if made_as and self._makers.get(key) == who:
            self._write("id", key=key, made_as=made_as)
            for one in self._waiting.pop(key, []):
                self._made_as(one, key)
        elif key in self.facts.ids:
            self._made_as(who, key)
        elif self._makers.get(key, who) == who:
            self._makers[key] = who
            self._made_as(who, key)
        else:
            self._waiting.setdefault(key, []).append(who)

    def _made_as(self, who: tuple[int, int], key: int) -> None:
        values = {"client": who[1], "key": key, "made_as": self.facts.ids.get(key, "")}
        self._say(("agent", who[0]), "made_as", round=self.facts.round, **values)

    # ---- how that is decided ------------------------------------------------------------------

    def _look_at_leases(self, now: float) -> None:
        for name in [n for n, s in self.facts.spares.items() if s.lease <= now]:
            del self.facts.spares[name]
        for place in self.facts.places.values():
            if place.life and place.code is None and place.lease <= now:
                self._lost_place(now, place)

    def _lost_place(self, now: float, place: Place) -> None:
        """The host of a place is silent, and has stopped all by now: another one takes the place."""
        why = f"host [{place.host}] of place [{place.number}] is lost"
        taker = self._taker(now, place.number)
        if not self.facts.line:
            self._fail(f"{why}, and there is no image yet")
        elif taker is None:
            return  # it is not known yet which of those that have its image are left
        elif not taker:
            self._fail(f"{why}, and no other host has its image{self._where(place.number)}")
        elif self.phase is Phase.BACK:
            self._since = now
            self._choose(now, place, self.facts.spares[taker])
            self._take(place)
        else:
            chosen = self.facts.spares[taker]
            self._back(now, why, 0, lambda: self._choose(now, place, chosen))

    def _choose(self, now: float, place: Place, taker: Spare) -> None:
        values = {"place": place.number, "host": taker.name, "life": place.life + 1}
        self._write("chosen", **values)
        place.present, place.restored = False, 0
        place.lease = now + max(self.lease, CLAIM_S)
        del self.facts.spares[taker.name]

    def _back(
        self, now: float, why: str, counts: int, then: Callable[[], None] | None = None
    ) -> None:
        """All go back. `then`: decides that a place moves, which is written only after the round.

        Else a head that reads the one without the other would let it join the round before.
        """
        facts = self.facts
        over = [p.number for p in facts.places.values() if p.code is not None]
        if over:
            return self._fail(f"{why}, and places {over} have ended")
        if not facts.line:
            return self._fail(f"{why}, and there is no image yet")
        if facts.restores + counts > MOST_RESTORES:
            return self._fail(f"{why}; image [{facts.line}] was restored [{facts.restores}] times")
        if self.pending:
            self._forget(self.pending.number)
            self.pending = None
        steps = max(place.steps for place in facts.places.values())
        values = {"number": facts.line, "why": why, "counts": counts, "steps": steps}
        self._write("back", round=facts.round + 1, **values)
        self.phase, self._since, self._prepares_until = Phase.BACK, now, None
        self._makers, self._waiting = {}, {}
        if then:
            then()
        for place in facts.places.values():
            if place.claimed:
                self._say_back(place, why)
            else:
                self._take(place)
        return None

    def _say_back(self, place: Place, why: str = "the head says so") -> None:
        """Tell a place's agent where all go back to, or that the place goes elsewhere."""
        kind = "leave" if place.leaving else "back"
        values = {"round": self.facts.round, "number": self.facts.line, "why": why}
        self._say(("agent", place.number), kind, **values)

    def _take(self, place: Place) -> None:
        values = {"place": place.number, "life": place.life, "term": self.facts.term}
        more = {"round": self.facts.round, "number": self.facts.line}
        more |= {"happened": place.happened}
        self._say(("spare", place.host), "take", **values, **more)

    def _is_back(self, place: Place) -> bool:
        return place.claimed and place.present and place.restored == self.facts.round

    def _look_back(self) -> None:
        """When all have come back, all go on."""
        if not all(self._is_back(p) for p in self.facts.places.values()):
            return
        drain, moved = self.facts.drain, {}
        if drain and drain.left:
            to = self.facts.places[drain.place].host
            moved = {"drained": drain.host, "place": drain.place, "to": to}
        self._write("onward", round=self.facts.round, **moved)
        self.phase = Phase.RUN
        self._next = max(self._next, self._since + LEAST_S)
        self._say_all("go", round=self.facts.round)

    def _taker(self, now: float, place: int) -> str | None:
        """Return which host takes a lost place, none if no host can; None: it has to be waited for.

        What is lost with the place has been silent for as long: so it has to have been heard since.
        """
        able = self._holders_of_line(now)
        heard = self._holders_of_line(now + self.lease * HEARD)
        best = holders.taker(place, heard)
        return best if best or not able[place] else None

    def _holders_of_line(self, now: float) -> dict[int, list[str]]:
        """Return which spare hosts that live have the image of the line of each place."""
        spares, line = self.facts.spares.values(), self.facts.line
        return {
            place: [
                s.name for s in spares if s.lease > now and s.port and (place, line) in s.images
            ]
            for place in self.facts.places
        }

    def _where(self, place: int) -> str:
        """Return where the copies of a place's image were, and what has become of these hosts."""
        taken = {p.host: f"has place [{p.number}]" for p in self.facts.places.values()}
        names = self.facts.holders.get(place, ())
        what = [f"host [{name}] {taken.get(name, 'is lost')}" for name in names]
        return f": {', '.join(what)}" if what else ""

    def _fail(self, why: str) -> None:
        self._write("failed", why=why)
        self._say_all("fail", why=why)
        self._say_spares("over", code=1, why=f"the job has ended: {why}")
