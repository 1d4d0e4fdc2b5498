"""Heads with a ledger in etcd: one decides at a time, and what it has decided stays decided.

A model without threads: heads are elected, keep their leases or do not, write, and are paused, in
random orders; requests and answers are lost, and some are carried out long after they were given up.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from fake_etcd import FakeEtcd, FakeStore

from pyft.errors import UsageError
from pyft.hosts.etcd import opening
from pyft.hosts.etcd.ledger import EtcdLedger
from pyft.hosts.head import elected as elected_module
from pyft.hosts.head.ledger import LedgerLost

SECRET = b"0123456789abcdef"
LEASE = 5
PREFIX = "/pyft/job/decisions/"


@pytest.fixture
def etcd(monkeypatch: pytest.MonkeyPatch) -> FakeEtcd:
    """An etcd whose clock all heads read."""
    made = FakeEtcd()
    monkeypatch.setattr(elected_module, "now", lambda: made.time)
    monkeypatch.setattr(elected_module.time, "sleep", made.pass_time)
    monkeypatch.setattr(elected_module.threading.Thread, "start", lambda _: None)
    return made


def a_head(etcd: FakeEtcd, name: str = "h", seed: int = 0, trouble: float = 0.0) -> EtcdLedger:
    """Return a head's ledger; nobody keeps its lease."""
    dice = random.Random(seed)
    return EtcdLedger(lambda: FakeStore(etcd, dice, trouble), "job", SECRET, name)


def elected(etcd: FakeEtcd, name: str = "h") -> EtcdLedger:
    """Return one that decides."""
    made = a_head(etcd, name)
    made.stand(LEASE, lambda _: None)
    return made


def test_the_next_head_reads_what_was_decided(etcd: FakeEtcd) -> None:
    first = elected(etcd)
    entries = [{"kind": "term", "term": 1}, {"kind": "line", "number": 2}]
    for entry in entries:
        first.write(entry)
    said: list[str] = []
    second = a_head(etcd, "second")
    second.stand(LEASE, said.append)
    assert second.entries == entries
    assert said == ["head: [h] decides for this job; this one waits"]
    assert first.lost() == "etcd has confirmed nothing for [4.5] s"


def test_what_etcd_refuses_to_read_is_said(etcd: FakeEtcd, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise elected_module.Refused("permission denied")

    head = a_head(etcd)
    monkeypatch.setattr(head._store, "read", refuse)
    with pytest.raises(UsageError, match=r"cannot be used: permission denied"):
        head.stand(LEASE, lambda _: None)


def test_a_lease_that_ends_before_it_is_used_is_made_anew(
    etcd: FakeEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's machine stands still between two questions."""
    head = a_head(etcd)
    ask = head._store.transact

    def late(*asked: Any) -> Any:
        monkeypatch.setattr(head._store, "transact", ask)
        etcd.pass_time(LEASE + 1)
        return ask(*asked)

    monkeypatch.setattr(head._store, "transact", late)
    head.stand(LEASE, lambda _: None)
    assert head._election
    assert not head.lost()


def test_a_head_whose_time_is_over_writes_nothing(etcd: FakeEtcd) -> None:
    first = elected(etcd)
    first.write({"kind": "term", "term": 1})
    second = elected(etcd, "second")
    second.write({"kind": "term", "term": 2})
    first._until = etcd.time + 99  # as if its clock had stood still
    with pytest.raises(OSError, match="another head decides"):
        first.write({"kind": "failed", "why": "late"})
    assert len(etcd.log(PREFIX)) == 2
    assert first.lost() == "another head decides"


def test_what_was_asked_before_has_no_effect_after_the_election(etcd: FakeEtcd) -> None:
    """It is on its way while another head is elected, and arrives then."""
    first = elected(etcd)
    store = first._store
    assert isinstance(store, FakeStore)
    store.trouble, store._dice = 1.0, Late()
    with pytest.raises(OSError, match="confirmed nothing"):
        first.write({"kind": "late"})
    assert etcd.late
    second = elected(etcd, "second")
    second.write({"kind": "term", "term": 2})
    etcd.pass_time(60)
    assert not etcd.late
    assert [kind(one.value) for one in etcd.log(PREFIX)] == ["term"]


class Late(random.Random):
    """Dice by which all comes half a minute late."""

    def choice(self, seq: object) -> str:  # type: ignore[override]
        """Choose that."""
        return "done late"

    def uniform(self, a: float, b: float) -> float:
        """Choose the time."""
        return 30.0


def test_a_lost_answer_does_not_write_twice(etcd: FakeEtcd) -> None:
    head = elected(etcd)
    store = head._store
    assert isinstance(store, FakeStore)

    class Once(random.Random):
        def choice(self, seq: object) -> str:  # type: ignore[override]
            store.trouble = 0.0
            return "done unheard"

    store.trouble, store._dice = 1.0, Once()
    head.write({"kind": "term", "term": 1})
    head.write({"kind": "line"})
    assert [kind(one.value) for one in etcd.log(PREFIX)] == ["term", "line"]


def test_a_lease_that_is_kept_counts_on(etcd: FakeEtcd) -> None:
    head = elected(etcd)
    for _ in range(20):
        etcd.pass_time(head._keep_once(head._make()))
    assert head.lost() == ""
    etcd.end_lease(head._lease)
    head._keep_once(head._make())
    assert head.lost() == "its lease in etcd has ended"


def test_an_end_is_said_and_nobody_waits(etcd: FakeEtcd) -> None:
    head, before = elected(etcd), etcd.time
    head.close()
    assert elected(etcd, "second").lost() == ""
    assert etcd.time == before
    assert head.lost()


@pytest.mark.parametrize("damage", ["value", "missing", "token", "swapped"])
def test_decisions_of_somebody_else_are_refused(etcd: FakeEtcd, damage: str) -> None:
    head = elected(etcd)
    for number in range(3):
        head.write({"kind": "line", "number": number})
    head.close()
    first, second = (PREFIX + f"{number:012d}" for number in (0, 1))
    keys = etcd.keys
    if damage == "value":
        keys[second] = keys[second].__class__(second, keys[second].value[:-3] + b"9}}", 5, 0)
    elif damage == "missing":
        del keys[second]
    elif damage == "swapped":
        keys[first] = keys[first].__class__(first, keys[second].value, 5, 0)
    secret = b"fedcba9876543210" if damage == "token" else SECRET
    other = EtcdLedger(lambda: FakeStore(etcd, random.Random(0)), "job", secret, "other")
    with pytest.raises(UsageError, match="is none of this job"):
        other.stand(LEASE, lambda _: None)


def test_an_etcd_that_never_answers_is_said(etcd: FakeEtcd) -> None:
    head = a_head(etcd, trouble=1.0)
    with pytest.raises(UsageError, match="cannot be reached for \\[10\\] s"):
        head.stand(LEASE, lambda _: None)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("etcd://", "no HOST:PORT"),
        ("etcd://a:1,b", "no HOST:PORT"),
        ("etcd://a:1/x/y", "no name of a job"),
        ("etcd://a:1/../x", "no name of a job"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        opening.opened(url, SECRET, "h", {})


def test_jobs_with_other_tokens_have_other_ledgers() -> None:
    one, same, other = (
        opening.opened("etcd://a:1", secret, "h", {})
        for secret in (SECRET, SECRET, b"fedcba9876543210")
    )
    assert one._prefix == same._prefix != other._prefix


def kind(value: bytes) -> str:
    """Return what was decided."""
    return str(json.loads(value[32:])["entry"]["kind"])


class Model:
    """Three heads, of which nothing is certain but what has to be."""

    def __init__(self, etcd: FakeEtcd, seed: int) -> None:
        self.etcd, self.dice = etcd, random.Random(seed)
        self.heads = [self._new() for _ in range(3)]
        self.written: dict[int, bytes] = {}  # what a head was told is written
        self.elections = 0

    def _new(self) -> EtcdLedger:
        return a_head(self.etcd, "h", self.dice.randrange(1 << 30), trouble=0.3)

    def step(self) -> None:
        """Let something happen."""
        number = self.dice.randrange(3)
        head = self.heads[number]
        if head._election and head.lost():
            self.heads[number] = self._new()  # it stands again
        elif not head._election:
            self._stand(head)
        elif self.dice.random() < 0.4:
            head._keep_once(head._store)
        else:
            self._write(head)
        if self.dice.random() < 0.4:
            self.etcd.pass_time(self.dice.choice((0.01, 0.1, 0.5, 1, 12)))
        self.check()

    def _stand(self, head: EtcdLedger) -> None:
        try:
            head._try(LEASE)
            if head._election:
                self.elections += 1
                head._read_all()
                before = [json.loads(one.value[32:])["entry"] for one in self.etcd.log(PREFIX)]
                assert head.lost() or head.entries == before
        except (LedgerLost, elected_module.Unanswered, elected_module.Refused):
            pass

    def _write(self, head: EtcdLedger) -> None:
        number, entry = head._count, {"kind": "x", "n": self.dice.randrange(1 << 30)}
        try:
            head.write(entry)
        except OSError:
            return
        self.written[number] = head._sealed(number, entry)

    def check(self) -> None:
        """Nothing is decided by two, and nothing that was decided is lost."""
        deciding = [head for head in self.heads if head._election and not head.lost()]
        assert len(deciding) <= 1
        log = self.etcd.log(PREFIX)
        assert all(len(log) == head._count for head in deciding)
        assert [one.key for one in log] == [PREFIX + f"{n:012d}" for n in range(len(log))]
        for number, value in self.written.items():
            assert log[number].value == value
        by = [json.loads(one.value[32:])["by"] for one in log]
        assert by == sorted(by)


def test_any_order_of_losses(etcd: FakeEtcd) -> None:
    """200 jobs of 60 events each."""
    elections = written = 0
    for seed in range(200):
        etcd.keys, etcd.leases, etcd.late = {}, {}, []
        model = Model(etcd, seed)
        for _ in range(60):
            model.step()
        elections, written = elections + model.elections, written + len(model.written)
    assert elections > 300
    assert written > 500
