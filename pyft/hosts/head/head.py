"""`pyft head`: one process, on a host that does not train, that decides for all hosts of a job.

A thread for each connection, and one for time; what is decided under one lock is in the ledger before
any of it is said. If the head dies, another one goes on with the same ledger: hosts call again. A head
whose ledger says that another one may decide now is silent at once, and ends (LedgerLost).

Leases and deadlines are counted by a clock that stands still while the head does: after a pause it would
take hosts for lost whose words wait in its sockets.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
import time
from typing import Any

from pyft.agent.process import messages
from pyft.agent.process.awake import AwakeClock
from pyft.hosts.head import of_servers, status
from pyft.hosts.head.decisions import Phase, Say, Tell, Write
from pyft.hosts.head.ledger import Ledger, LedgerLost
from pyft.hosts.head.moves import Moves
from pyft.hosts.head.places import Facts
from pyft.hosts.head.told import copies_of, told
from pyft.hosts.wire import checked
from pyft.hosts.wire.accepting import accept_all
from pyft.hosts.wire.link import Link, LinkError
from pyft.images.appended import MOST_LOGS

TICK_S = 0.05
HERE_AT = 1 / 6  # of the lease: how often it says that it is there, if others may be
SILENT_S = 60.0  # of a connection that says nothing
END_S = 5.0  # for all to hear that the job has ended
MOST_CONNECTIONS = 1024
MOST_LINES = 4096  # of the communicators of a place
MOST_STOOD_US = 3600 * 10**6
MOST_RANKS = 1024  # of a place
MOST_REQUESTS = 4096  # of faults, of which some have happened
ID_BYTES = 256  # of a communicator's id, as hexadecimal digits


class Head:
    """Serves one job."""

    def __init__(
        self, listener: socket.socket, secret: bytes, places: int, ledger: Ledger, **how: Any
    ) -> None:
        """`how`: lease, every, copies, topology and mttf_s, of the coordinator."""
        self._listener, self._secret, self._ledger = listener, secret, ledger
        self._lock = threading.RLock()
        self._links: dict[tuple[str, int | str], Link] = {}
        self._copies = ""  # what was said last about what they survive
        self._broken = ""  # why nothing can be decided any more
        self._clock = AwakeClock()
        facts = Facts(places)
        self._faults = status.Faults()
        for entry in ledger.entries:
            facts.apply(entry)
            self._faults.take(entry, facts)
        if facts.lease and facts.lease != how["lease"]:
            messages.say(f"head: the lease stays [{facts.lease:g}] s, as the ledger has it")
            how["lease"] = facts.lease
        self._coordinator = Moves(facts, now=self._clock.now(), **how)
        self._write({"kind": "term", "term": facts.term + 1, "lease": how["lease"]})
        if self._coordinator.phase is Phase.OVER:
            messages.say("head: the ledger is of a job that has ended; a new one needs another")

    def run(self) -> int:
        """Serve until the job has ended; return its exit code. Raise PyftError without a ledger."""
        accept_all(self._listener, MOST_CONNECTIONS, self._serve)
        ended_at = here_at = 0.0
        while not ended_at or time.monotonic() < ended_at:
            with self._lock:
                now = self._clock.now()
                self._coordinator.tick(now)
                self._perform()
                if self._is_out():
                    self._end()
                    raise LedgerLost(self._broken)
                if self._ledger.is_shared and now >= here_at:
                    here_at = now + HERE_AT * self._coordinator.lease
                    self._say_here()
                over = self._coordinator.phase is Phase.OVER or self._coordinator.facts.failed
            if over and not ended_at:
                ended_at = time.monotonic() + END_S
            if over and not self._links:
                break
            time.sleep(TICK_S)
        self._end()
        return self._coordinator.facts.exit_code

    def _is_out(self) -> bool:
        """Say whether nothing may be decided here any more, and so nothing be said."""
        self._broken = self._broken or self._ledger.lost()
        return bool(self._broken)

    def _end(self) -> None:
        """Let all go, and call again: another head may be there."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # what waits in accept() is woken
        self._listener.close()
        with self._lock:
            for link in list(self._links.values()):
                link.close()
        self._ledger.close()

    def _say_here(self) -> None:
        for who, link in list(self._links.items()):
            if link.has_room():
                self._send(Say(who, "here"))

    # ---- connections --------------------------------------------------------------------------

    def _serve(self, sock: socket.socket, peer: str) -> None:
        who: tuple[str, int | str] | None = None
        link = None
        try:
            link = Link(sock, self._secret, calls=False)
            hello = link.receive(SILENT_S)
            who = self._introduced(link, hello or {})
            while who and (said := link.receive(SILENT_S)):
                with self._lock:
                    if self._is_out() or self._links.get(who) is not link:
                        break
                    self._heard(who, link, said)
                    self._perform()
        except LinkError as error:
            if who is None:
                messages.say(f"head: a connection from [{peer}] is refused: {error}")
        except OSError:
            pass
        finally:
            self._over(who, link)

    def _over(self, who: tuple[str, int | str] | None, link: Link | None) -> None:
        with self._lock:
            if who and self._links.get(who) is link:
                del self._links[who]
                if who[0] == "agent":
                    self._coordinator.gone(self._clock.now(), int(who[1]))
                    self._perform()
        if link:
            link.close()

    def _introduced(self, link: Link, hello: dict[str, Any]) -> tuple[str, int | str] | None:
        """Take what calls; None: it has been told why not."""
        now, coordinator = self._clock.now(), self._coordinator
        if hello.get("kind") != "hello":
            raise LinkError("it does not say hello")
        role = checked.name(hello, "role")
        if role == "operator":
            self._answer(link, hello)
            return None
        with self._lock:
            if "domain" in hello:
                host, domain = checked.name(hello, "host"), checked.name(hello, "domain")
                coordinator.topology.note(host, domain)
            if role == "spare":
                name = checked.name(hello, "host")
                who: tuple[str, int | str] = ("spare", name)
                port = checked.number(hello, "port", 65535)
                coordinator.spare(now, name, checked.name(hello, "address"), port)
                images = checked.rows(hello, "images", 2, MOST_LINES)
                if name in coordinator.facts.spares:
                    coordinator.facts.spares[name].images = {(p, n) for p, n in images}
            else:
                place = checked.number(hello, "place", len(coordinator.facts.places) - 1)
                who = (role, place)
                life = checked.number(hello, "life")
                if role == "host":
                    why = self._claimed(now, place, checked.name(hello, "host"), life)
                elif role == "agent":
                    owns = coordinator.owns(place, life)
                    why = "" if owns else "another host has the place"
                else:
                    raise LinkError(f"[{role}] is no role")
                if why:
                    self._perform()
                    if self._is_out():  # what it knows may be of an earlier time
                        raise LinkError(self._broken)
                    link.send("refused", why=why)
                    return None
            self._replace(who, link)
            try:
                self._welcome(now, who, link, hello)
            except BaseException:
                self._over(who, link)  # nothing is heard of it, so nothing would notice its end
                raise
        return who

    def _welcome(
        self, now: float, who: tuple[str, int | str], link: Link, hello: dict[str, Any]
    ) -> None:
        """Say where the job is; raise OSError."""
        coordinator = self._coordinator
        self._perform()  # what a claim has decided is written first
        if self._is_out():
            raise LinkError(self._broken)
        life = coordinator.facts.places[int(who[1])].life if who[0] != "spare" else 0
        places, term = len(coordinator.facts.places), coordinator.facts.term
        link.send("welcome", life=life, lease_s=coordinator.lease, places=places, term=term)
        if who[0] == "agent":
            number, restored = int(who[1]), checked.number(hello, "restored")
            coordinator.known_at(number, checked.name(hello, "address"))
            coordinator.agent(now, number, restored)
            if hello.get("prepares") is True:
                coordinator.prepares(number)
            self._perform()

    def _answer(self, link: Link, hello: dict[str, Any]) -> None:
        """Do what an operator asks for, when it is in the ledger; then say how the job is."""
        order, now = checked.name(hello, "order"), self._clock.now()
        with self._lock:
            why = self._ordered(now, order, hello)
            self._perform()
            why = why or (self._broken if self._is_out() else "")
            said = status.describe(self._coordinator, self._faults, now)
        link.send("refused" if why else "answer", why=why, **said)

    def _ordered(self, now: float, order: str, hello: dict[str, Any]) -> str:
        """Do what an operator asks for; return why not."""
        coordinator = self._coordinator
        to = checked.name(hello, "to") if "to" in hello else ""
        if order == "drain":
            return coordinator.drain(now, checked.name(hello, "host"), to)
        if order == "move":
            return coordinator.move(now, checked.number(hello, "rank"), checked.name(hello, "to"))
        if order == "cancel" and "rank" in hello:
            return coordinator.cancel_move(now, checked.number(hello, "rank"))
        if order == "cancel":
            return coordinator.cancel(now, checked.name(hello, "host"))
        if order != "status":
            raise LinkError(f"[{order}] is no order")
        return ""

    def _claimed(self, now: float, place: int, host: str, life: int) -> str:
        if life and self._coordinator.renew(now, place, host, life):
            return ""
        why = self._coordinator.claim(now, place, host, life)
        if not why:
            messages.say(f"head: place [{place}] is on host [{host}]")
        return why

    def _replace(self, who: tuple[str, int | str], link: Link) -> None:
        if before := self._links.get(who):
            before.close()
        self._links[who] = link

    # ---- messages -----------------------------------------------------------------------------

    def _heard(self, who: tuple[str, int | str], link: Link, said: dict[str, Any]) -> None:
        now = self._clock.now()
        if who[0] == "spare":
            self._heard_of_spare(now, str(who[1]), link, said)
        elif who[0] == "host":
            self._heard_of_host(now, int(who[1]), link, said)
        else:
            self._heard_of_agent(now, int(who[1]), said)

    def _heard_of_spare(self, now: float, name: str, link: Link, said: dict[str, Any]) -> None:
        coordinator, kind = self._coordinator, said["kind"]
        spare = coordinator.facts.spares.get(name)
        if spare is None:
            return  # it has been chosen for a place
        if kind == "renew":
            coordinator.spare(now, name, spare.address, spare.port)
            link.send("renewed", number=checked.number(said, "number"))
        elif kind == "have":
            most = len(coordinator.facts.places) - 1
            coordinator.have(
                name, checked.number(said, "place", most), checked.number(said, "number")
            )

    def _heard_of_host(self, now: float, place: int, link: Link, said: dict[str, Any]) -> None:
        coordinator, kind = self._coordinator, said["kind"]
        if kind == "renew":
            host, life = checked.name(said, "host"), checked.number(said, "life")
            if coordinator.renew(now, place, host, life):
                link.send("renewed", number=checked.number(said, "number"))
            else:
                link.send("refused", why=coordinator.facts.failed or "another host has the place")
        elif kind == "left":
            coordinator.left(place, checked.number(said, "life"))
            link.send("noted")
        elif kind == "done" and coordinator.owns(place, checked.number(said, "life")):
            coordinator.done(place, checked.number(said, "code", 255))
            self._perform()
            if not self._is_out():
                link.send("noted")

    def _heard_of_agent(self, now: float, place: int, said: dict[str, Any]) -> None:
        coordinator, kind = self._coordinator, said["kind"]
        if kind in of_servers.KINDS:
            of_servers.heard(coordinator, now, place, said)
        elif kind == "status":
            steps = checked.number(said, "steps")
            coordinator.status(place, steps, checked.number(said, "step_us") / 1e6)
        elif kind == "ranks":
            coordinator.ranks(place, checked.numbers(said, "ranks", MOST_RANKS))
        elif kind == "prepared":
            coordinator.prepared(now, place, checked.number(said, "stood_us", MOST_STOOD_US) / 1e6)
        elif kind == "held":
            lines = checked.rows(said, "lines", 5, MOST_LINES)
            coordinator.held(now, place, checked.number(said, "step"), lines)
        elif kind == "still":
            coordinator.still(now, place, checked.number(said, "step"), checked.text(said, "why"))
        elif kind == "copied":
            logs = checked.texts(said, "logs", MOST_LOGS)
            coordinator.copied(now, place, checked.number(said, "number"), logs)
        elif kind == "passed":
            coordinator.passed_over(now, place, checked.text(said, "why"))
        elif kind == "unmirrored":
            why, spare = checked.text(said, "why"), checked.name(said, "host")
            coordinator.unmirrored(place, checked.number(said, "number"), spare, why)
        elif kind == "sending":
            coordinator.sending(now, checked.number(said, "number"))
        elif kind == "lost":
            coordinator.lost(now, place, checked.text(said, "why"))
        elif kind == "want_id":
            made_as = checked.text(said, "made_as")
            if len(made_as) > 2 * ID_BYTES or not all(c in "0123456789abcdef" for c in made_as):
                raise LinkError("[made_as] is no id")
            client, key = checked.number(said, "client"), checked.number(said, "key", (1 << 64) - 1)
            coordinator.want_id(place, checked.number(said, "round"), client, key, made_as)
        elif kind == "lacks_gpu" and checked.number(said, "round") == coordinator.facts.round:
            happened = checked.numbers(said, "happened", MOST_REQUESTS)
            coordinator.lacks_gpu(place, checked.text(said, "why"), happened)
        elif kind == "relay":
            self._pass_on(place, said)

    def _pass_on(self, place: int, said: dict[str, Any]) -> None:
        """Give another place what a program says; it is said again if that is not possible now."""
        coordinator, round = self._coordinator, checked.number(said, "round")
        to = checked.number(said, "to", len(coordinator.facts.places) - 1)
        link = self._links.get(("agent", to))
        if link and to != place and coordinator.passes_on(place, round) and link.has_room():
            data = checked.data(said, "data")
            text = base64.b64encode(data).decode()
            self._send(Say(("agent", to), "relay", {"round": round, "data": text}))

    # ---- what has been decided ----------------------------------------------------------------

    def _perform(self) -> None:
        """Do it, in this order; a message that does not arrive is said again to what calls next.

        What follows from a decision that is not in the ledger is never said: another head decides.
        """
        for action in self._coordinator.taken():
            if self._is_out():
                return
            if isinstance(action, Write):
                self._write(action.entry)
            elif isinstance(action, Tell):
                messages.say(f"head: {action.sentence}")
            else:
                self._send(action)

    def _write(self, entry: dict[str, Any]) -> None:
        entry = entry | {"at": round(time.time(), 3)}
        try:
            self._ledger.write(entry)
        except OSError as error:
            self._broken = f"the ledger cannot be written: {error.strerror}"
            return
        if entry["kind"] == "term":
            self._coordinator.facts.apply(entry)
        self._faults.take(entry, self._coordinator.facts)
        if sentence := told(entry):
            messages.say(f"head: {sentence}")
        if entry["kind"] == "line" and (sentence := copies_of(entry)) != self._copies:
            self._copies = sentence
            messages.say(f"head: {sentence}")

    def _send(self, action: Say) -> None:
        link = self._links.get(action.to)
        if link is None:
            return
        try:
            link.send(action.kind, **action.values)
        except OSError:
            with contextlib.suppress(OSError):
                link.socket.shutdown(socket.SHUT_RDWR)
