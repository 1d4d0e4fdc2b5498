"""Heads with a ledger in Kubernetes: one decides at a time, and what it has decided stays decided.

A model without threads, as for etcd (test_etcd_ledger.py): heads are elected, keep their Leases or do not,
write, and are paused, in random orders; requests and answers are lost, and some are carried out long
after they were given up. The API server is a stand-in (fake_kubernetes.py).
"""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from fake_kubernetes import Cluster, FakeStore

from pyft.errors import UsageError
from pyft.hosts.head import elected as elected_module
from pyft.hosts.head.elected import Refused, Unanswered
from pyft.hosts.head.ledger import LedgerLost
from pyft.hosts.kubernetes import opening
from pyft.hosts.kubernetes import pages as pages_module
from pyft.hosts.kubernetes.api import CONFIG_MAPS, Found
from pyft.hosts.kubernetes.ledger import KubernetesLedger
from pyft.hosts.kubernetes.pages import Superseded
from pyft.hosts.kubernetes.record import Record

SECRET = b"0123456789abcdef"
LEASE = 5
JOB = "run7"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster whose clock all heads read."""
    made = Cluster()
    monkeypatch.setattr(elected_module, "now", lambda: made.time)
    monkeypatch.setattr(elected_module.time, "sleep", made.pass_time)
    monkeypatch.setattr(elected_module.threading.Thread, "start", lambda _: None)
    return made


def a_head(
    cluster: Cluster, name: str = "h", seed: int = 0, trouble: float = 0.0
) -> KubernetesLedger:
    """Return a head's ledger; nobody keeps its Lease."""
    dice = random.Random(seed)
    return KubernetesLedger(lambda: FakeStore(cluster, dice, trouble), JOB, SECRET, name)


def chosen(cluster: Cluster, name: str = "h") -> KubernetesLedger:
    """Return one that decides."""
    made = a_head(cluster, name)
    made.stand(LEASE, lambda _: None)
    return made


def spec(cluster: Cluster) -> dict[str, Any]:
    """Return what the Lease says."""
    return cluster.objects["leases", JOB]["spec"]


def entry_of(value: str) -> dict[str, Any]:
    """Return what was decided."""
    return json.loads(value[32:])["entry"]


def kinds(cluster: Cluster) -> list[str]:
    """Return what was decided, in its order."""
    return [entry_of(value)["kind"] for value in cluster.decisions(JOB)]


def store_of(head: KubernetesLedger) -> FakeStore:
    """Return its way to the cluster."""
    assert isinstance(head._store, FakeStore)
    return head._store


def test_the_lease_is_as_other_programs_read_it(cluster: Cluster) -> None:
    head = chosen(cluster)
    said = spec(cluster)
    assert said["holderIdentity"].startswith("h, ")
    assert (said["leaseDurationSeconds"], said["leaseTransitions"]) == (LEASE, 1)
    for name in ("renewTime", "acquireTime"):
        assert len(said[name]) == len("2026-01-02T03:04:05.678901Z")
    head.close()
    assert "holderIdentity" not in spec(cluster)


def test_the_next_head_reads_what_was_decided(cluster: Cluster) -> None:
    first = chosen(cluster, "first")
    entries = [{"kind": "term", "term": 1}, {"kind": "line", "number": 2}]
    for entry in entries:
        first.write(entry)
    said: list[str] = []
    second = a_head(cluster, "second")
    second.stand(LEASE, said.append)
    assert second.entries == entries
    assert len(said) == 1
    assert said[0].startswith("head: [first, ")
    assert said[0].endswith("] decides for this job; this one waits")
    assert first.lost() == "the API server has confirmed nothing for [4.5] s"
    assert spec(cluster)["leaseTransitions"] == 2


def test_clocks_of_other_hosts_mean_nothing(cluster: Cluster) -> None:
    """What a holder has written as the time of its renewal may be of yesterday, or of tomorrow."""
    first = chosen(cluster)
    for renewed in ("1990-01-01T00:00:00.000000Z", "2090-01-01T00:00:00.000000Z"):
        spec(cluster)["renewTime"] = renewed
        other = a_head(cluster, "other")
        for _ in range(4):  # its holder renews it meanwhile
            assert other._try(LEASE)
            first._keep_once(first._store, [None])
            cluster.pass_time(LEASE - 1)
        assert not other._election
    begin = cluster.time
    other.stand(LEASE, lambda _: None)
    assert cluster.time >= begin + LEASE - elected_module.LOOK_S


def test_a_head_whose_time_is_over_writes_nothing(cluster: Cluster) -> None:
    first = chosen(cluster)
    first.write({"kind": "term", "term": 1})
    second = chosen(cluster, "second")
    first._until = cluster.time + 99  # as if its clock had stood still
    with pytest.raises(OSError, match="another head decides"):
        first.write({"kind": "failed", "why": "late"})
    second.write({"kind": "term", "term": 2})
    assert kinds(cluster) == ["term", "term"]
    assert first.lost() == "another head decides"


def test_a_head_that_is_late_to_read_does_not_put_out_the_next_one(cluster: Cluster) -> None:
    """It is paused between its election and its first look at the decisions."""
    first, second = a_head(cluster, "first"), a_head(cluster, "second")
    first._try(LEASE)
    assert first._election
    second.stand(LEASE, lambda _: None)
    second.write({"kind": "term", "term": 2})
    first._until = cluster.time + 99
    with pytest.raises(LedgerLost, match="another head decides"):
        first._read_all()
    second.write({"kind": "line"})
    assert kinds(cluster) == ["term", "line"]


def test_a_page_that_an_earlier_head_begins_is_none(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last page is full, and closed; what makes the next one has to be the head of now."""
    monkeypatch.setattr(pages_module, "PAGE_BYTES", 300)
    first = chosen(cluster)
    while not any("closed" in one.get("data", {}) for one in cluster.objects.values()):
        first.write({"kind": "line"})
    del cluster.objects["configmaps", f"{JOB}-000001"]  # it has not made that before it was paused
    count = len(cluster.decisions(JOB))
    first._count, first._pages._page = count, pages_module.Page(1, None)
    second = chosen(cluster, "second")
    first._until = cluster.time + 99
    with pytest.raises(OSError, match="another head decides"):
        first.write({"kind": "late"})
    second.write({"kind": "term"})
    assert kinds(cluster) == ["line"] * count + ["term"]


def test_many_decisions_are_read_in_their_order(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "PAGE_BYTES", 1000)
    head = chosen(cluster)
    entries = [{"kind": "line", "number": n, "x": "y" * (n % 70)} for n in range(60)]
    for entry in entries:
        head.write(entry)
    assert sum(key[0] == "configmaps" for key in cluster.objects) > 5
    assert chosen(cluster, "second").entries == entries


def test_a_decision_that_no_object_can_have_is_refused(cluster: Cluster) -> None:
    head = chosen(cluster)
    head.write({"kind": "line", "why": "x" * 800_000})
    head.write({"kind": "line"})
    with pytest.raises(OSError, match=r"a decision has \[.*\] bytes, and Kubernetes takes"):
        head.write({"kind": "line", "why": "x" * 950_000})
    assert kinds(cluster) == ["line", "line"]


class Fate(random.Random):
    """Dice by which the next request has this fate, and all others none."""

    def __init__(self, store: FakeStore, how: str) -> None:
        super().__init__(0)
        self._store, self._how = store, how
        store.trouble, store.dice = 1.0, self

    def choice(self, seq: object) -> str:  # type: ignore[override]
        """Choose that."""
        self._store.trouble = 0.0
        return self._how

    def uniform(self, a: float, b: float) -> float:
        """Choose the time."""
        return 30.0


def test_a_lost_answer_does_not_write_twice(cluster: Cluster) -> None:
    head = chosen(cluster)
    for how in ("done unheard", "asked in vain"):
        Fate(store_of(head), how)
        head.write({"kind": how.split()[0]})
    assert kinds(cluster) == ["done", "asked"]
    assert head.lost() == ""


def test_what_was_asked_before_has_no_effect_after_the_election(cluster: Cluster) -> None:
    """It is on its way while another head is elected, and arrives then."""
    first = chosen(cluster)
    Fate(store_of(first), "done late")
    first._until = cluster.time + 1.0
    with pytest.raises(OSError, match="confirmed nothing"):
        first.write({"kind": "late"})
    assert cluster.late
    second = chosen(cluster, "second")
    second.write({"kind": "term", "term": 2})
    cluster.pass_time(60)
    assert not cluster.late
    assert kinds(cluster) == ["term"]


def test_an_election_whose_answer_is_lost_counts(cluster: Cluster) -> None:
    head = a_head(cluster)
    create = head._store.create

    def unheard(*asked: Any) -> Any:
        head._store.create = create  # type: ignore[method-assign]
        create(*asked)
        raise Unanswered("it is lost")

    head._store.create = unheard  # type: ignore[method-assign]
    begin = cluster.time
    head.stand(LEASE, lambda _: None)
    assert (head._election, head.lost()) == (1, "")
    assert cluster.time < begin + LEASE


def test_a_renewal_without_an_answer_counts_when_it_is_seen(cluster: Cluster) -> None:
    """And from when it was asked for."""
    head = chosen(cluster)
    known: list[Found | None] = [None]
    cluster.pass_time(2.0)
    sent = cluster.time
    update = head._store.update

    def unheard(*asked: Any) -> Any:
        head._store.update = update  # type: ignore[method-assign]
        update(*asked)
        raise Unanswered("it is lost")

    head._store.update = unheard  # type: ignore[method-assign]
    assert head._keep_once(head._store, known) == elected_module.AGAIN_S
    until = head._until
    cluster.pass_time(1.0)
    head._store.update = lambda *_: (_ for _ in ()).throw(Unanswered("it is away"))  # type: ignore
    head._keep_once(head._store, known)
    assert until < head._until == sent + elected_module.COUNTS * LEASE


def test_a_lease_that_is_renewed_counts_on(cluster: Cluster) -> None:
    head = chosen(cluster)
    known: list[Found | None] = [None]
    for number in range(20):
        cluster.pass_time(head._keep_once(head._store, known))
        if number % 7 == 3:  # another program notes something in it
            about = cluster.objects["leases", JOB]["metadata"]
            cluster.version += 1
            about["resourceVersion"] = str(cluster.version)
            about["annotations"] = {"seen": "yes"}
    assert head.lost() == ""
    assert cluster.objects["leases", JOB]["metadata"]["annotations"] == {"seen": "yes"}
    spec(cluster)["holderIdentity"] = "another one"
    cluster.pass_time(head._keep_once(head._store, [None]))
    assert head.lost() == "another head decides"


def test_a_lease_that_was_deleted_is_waited_for_all_the_same(cluster: Cluster) -> None:
    """Its holder may not know it yet; and numbers of heads go on."""
    first = chosen(cluster)
    first.write({"kind": "term"})
    del cluster.objects["leases", JOB]
    begin = cluster.time
    second = chosen(cluster, "second")
    assert cluster.time >= begin + LEASE
    assert second._election == first._election + 1
    first._keep_once(first._store, [None])
    assert first.lost()


def test_an_end_is_said_and_nobody_waits(cluster: Cluster) -> None:
    head, before = chosen(cluster), cluster.time
    head.close()
    assert chosen(cluster, "second").lost() == ""
    assert cluster.time == before
    assert head.lost()


@pytest.mark.parametrize("damage", ["value", "missing", "token", "swapped", "page"])
def test_decisions_of_another_job_are_refused(
    cluster: Cluster, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "PAGE_BYTES", 300)
    head = chosen(cluster)
    for number in range(9):
        head.write({"kind": "line", "number": number})
    head.close()
    data = cluster.objects["configmaps", f"{JOB}-000000"]["data"]
    first, second = (f"{number:012d}" for number in (0, 1))
    if damage == "value":
        data[second] = data[second][:-3] + "9}}"
    elif damage == "missing":
        del data[second]
    elif damage == "swapped":
        data[first], data[second] = data[second], data[first]
    elif damage == "page":
        cluster.objects["configmaps", f"{JOB}-000000"]["data"] = {"by": "1", "closed": "yes"}
    secret = b"fedcba9876543210" if damage == "token" else SECRET
    dice = random.Random(0)
    other = KubernetesLedger(lambda: FakeStore(cluster, dice), JOB, secret, "other")
    with pytest.raises(UsageError, match="is none of this job"):
        other.stand(LEASE, lambda _: None)


@pytest.mark.parametrize(
    "content",
    [
        {"holderIdentity": 5},
        {"leaseDurationSeconds": "x"},
        {"leaseTransitions": -1},
        {"renewTime": 7},
    ],
)
def test_a_lease_that_is_none_is_refused(cluster: Cluster, content: dict[str, Any]) -> None:
    cluster.create("leases", JOB, {"metadata": {"name": JOB}, "spec": content})
    with pytest.raises(UsageError, match="contents are none"):
        a_head(cluster).stand(LEASE, lambda _: None)


def test_a_lease_that_holds_for_ever_is_waited_for_an_hour_at_most() -> None:
    assert Record.of({"leaseDurationSeconds": 1 << 40}).seconds == 3600


def test_a_server_that_never_answers_is_said(cluster: Cluster) -> None:
    head = a_head(cluster, trouble=1.0)
    with pytest.raises(UsageError, match="cannot be reached for \\[10\\] s"):
        head.stand(LEASE, lambda _: None)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("kubernetes://", "no namespace"),
        ("kubernetes://A", "no namespace"),
        ("kubernetes://training/x/y", "no name of a Lease"),
        ("kubernetes://training/../x", "no name of a Lease"),
        ("kubernetes://training/" + "x" * 51, "no name of a Lease"),
    ],
)
def test_a_name_that_is_none_is_refused(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        opening.opened(url, SECRET, "h", {"PYFT_KUBERNETES_API": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({}, "no pod of Kubernetes"),
        ({"PYFT_KUBERNETES_API": "http://10.0.0.1"}, "is not encrypted"),
        ({"PYFT_KUBERNETES_API": "ftp://10.0.0.1"}, "no address of an API server"),
        ({"PYFT_KUBERNETES_API": "https://a:b"}, "no address of an API server"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "cannot be used"),
    ],
)
def test_an_api_server_that_cannot_be_asked_is_refused(
    environment: dict[str, str], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        opening.opened("kubernetes://training", SECRET, "h", environment)


def test_jobs_with_other_tokens_have_other_names() -> None:
    environment = {"PYFT_KUBERNETES_API": "http://127.0.0.1:1"}
    one, same, other = (
        opening.opened("kubernetes://training", secret, "h", environment)
        for secret in (SECRET, SECRET, b"fedcba9876543210")
    )
    assert one._job == same._job != other._job


class Model:
    """Three heads, of which nothing is certain but what has to be."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster, self.dice = cluster, random.Random(seed)
        self.heads = [self._new() for _ in range(3)]
        self.written: dict[int, str] = {}  # what a head was told is written
        self.elections = self.late = 0

    def _new(self) -> KubernetesLedger:
        return a_head(self.cluster, "h", self.dice.randrange(1 << 30), trouble=0.3)

    def step(self) -> None:
        """Let something happen."""
        number = self.dice.randrange(3)
        head = self.heads[number]
        if head._election and head.lost():
            how = self.dice.random()
            if how < 0.4:
                self._wakes(head)
            elif how < 0.7:
                head.close()
            if how >= 0.4:
                self.heads[number] = self._new()  # it stands again
        elif not head._election:
            self._stand(head)
        elif self.dice.random() < 0.4:
            head._keep_once(head._store, [None])
        else:
            self._write(head)
        if self.dice.random() < 0.4:
            self.cluster.pass_time(self.dice.choice((0.01, 0.1, 0.5, 1, 12)))
        self.check()

    def _wakes(self, head: KubernetesLedger) -> None:
        """One that was paused goes on in the middle of a decision."""
        entry = {"kind": "late", "n": self.dice.randrange(1 << 30)}
        with contextlib.suppress(Superseded, Unanswered, Refused):
            sealed = head._sealed(head._count, entry).decode()
            head._pages.add(head._count, sealed, head._election)
            head._count += 1
            self.late += 1
        self.check()

    def _stand(self, head: KubernetesLedger) -> None:
        try:
            head._try(LEASE)
            if head._election:
                self.elections += 1
                head._read_all()
                before = [entry_of(value) for value in self.cluster.decisions(JOB)]
                assert head.lost() or head.entries == before
        except (LedgerLost, Unanswered, Refused):
            pass

    def _write(self, head: KubernetesLedger) -> None:
        number, entry = head._count, {"kind": "x", "n": self.dice.randrange(1 << 30)}
        try:
            head.write(entry)
        except OSError:
            return
        self.written[number] = head._sealed(number, entry).decode()

    def check(self) -> None:
        """Nothing is decided by two, and nothing that was decided is lost."""
        deciding = [head for head in self.heads if head._election and not head.lost()]
        assert len(deciding) <= 1
        log = self.cluster.decisions(JOB)
        for number, value in self.written.items():
            assert log[number] == value
        by = [json.loads(value[32:])["by"] for value in log]
        assert by == sorted(by)
        for number, value in enumerate(log):
            sealed = self.heads[0]._mac(number, value[32:].encode()).decode()
            assert value[:32] == sealed


def test_any_order_of_losses(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 jobs of 90 events each; pages of three decisions."""
    monkeypatch.setattr(pages_module, "PAGE_BYTES", 280)
    elections = written = pages = late = 0
    for seed in range(200):
        cluster.objects, cluster.late = {}, []
        model = Model(cluster, seed)
        for _ in range(90):
            model.step()
        elections, written = elections + model.elections, written + len(model.written)
        late += model.late
        pages += sum(key[0] == CONFIG_MAPS[1] for key in cluster.objects)
    assert elections > 300
    assert written > 400
    assert late > 20  # which were in time: no other head had been elected
    assert pages > 200
