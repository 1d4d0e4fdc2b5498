"""A job on several hosts: one is lost, and losses and parameters are those without any fault.

The first test runs wherever hosts can be made; the others only where PYFT_REQUIRE names nodes.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import etcd_server
import pytest
from job import wait_for
from required import refuses

sys.path.insert(0, str(Path(__file__).parent))
import fabric  # noqa: E402
import movable  # noqa: E402
import several  # noqa: E402

STEPS = ("--steps", "60", "--pause", "0.1")
Need = Callable[[str, bool, str], None]
longer = pytest.mark.skipif(
    not refuses("[nodes]: "), reason="[nodes]: it takes half a minute; make test-nodes runs it"
)


@pytest.fixture(autouse=True)
def _kernel(need: Need) -> None:
    why = movable.lacks() or _fabric_lacks()
    need("nodes", not why, why)


@cache
def _fabric_lacks() -> str:
    return fabric.lacks()


@cache
def expected(steps: int) -> frozenset[str]:
    """Return the results without any fault, on one host."""
    with TemporaryDirectory() as folder:
        return frozenset(movable.undisturbed(Path(folder), "--steps", str(steps)))


@pytest.fixture
def hosts() -> Iterator[fabric.Fabric]:
    """Two hosts that train, and a spare."""
    with fabric.Fabric(3) as made:
        yield made


def lingering(
    folder: Path, hosts: fabric.Fabric, *arguments: str, **how: Any
) -> several.SeveralHosts:
    """Start a job that is not over before something has died, however busy the machine is."""
    return several.SeveralHosts(folder, hosts, *arguments, lingers=True, **how)


def ends_equal(job: several.SeveralHosts, steps: int = 60) -> None:
    """Wait for the end, and compare."""
    assert job.wait(120) == 0, job.everything()
    assert job.results() == expected(steps), job.everything()


def test_a_host_dies_silently(tmp_path: Path, hosts: fabric.Fabric) -> None:
    """Nobody hears of it; the spare goes on with its place, and the other one goes back.

    All hosts give their first processes the same numbers, and each has started at another time.
    Files that all hosts see are cut back, also by the host that has not written them.
    """
    slow, log = tmp_path / "slow", tmp_path / "log.txt"
    slow.touch()  # or a busy machine may see the end before it sees the line
    steps = ("--steps", "40", "--pause", "0.1", "--slow", str(slow), "--log", str(log))
    job = several.SeveralHosts(tmp_path, hosts, *steps, lease=2.0, every=0.5)
    job.wait_for_line()
    job.wait_for_step(1, 5)
    hosts.hosts[1].kill()
    back = "all have come back, and go on"
    wait_for(lambda: back in job.said("head"), 60, job.everything)
    for role, seconds in job.clocks_at("h2", 1).items():
        assert abs(seconds - hosts.hosts[1].up) < 120, f"the clock of the [{role}] goes on"
    slow.unlink()
    ends_equal(job, 40)
    said = job.said("head")
    assert "host [h1] of place [1] is lost: all go back" in said
    assert "host [h2] takes place [1]" in said
    verdicts = {fault["verdict"] for fault in _faults(tmp_path / "log-h0")}
    assert verdicts == {"exact"}
    for rank in (0, 1):
        lines = log.with_name(f"log.txt.{rank}").read_text().splitlines()
        assert len(lines) == len(set(lines)) == 40


def test_ranks_whose_steps_have_parted_are_not_held_in_vain(tmp_path: Path) -> None:
    """One place is held, and the rank of the other one waits for it: the head sees that."""
    with fabric.Fabric(2) as hosts:
        steps = ("--steps", "100", "--pause", "0.05", "--parted", "1")
        job = several.SeveralHosts(tmp_path, hosts, *steps, every=0.5)
        assert job.wait(120) == 0, job.everything()
        assert "wait for others" in job.said("h0")


@longer
def test_a_host_dies_and_the_disk_with_its_log(tmp_path: Path) -> None:
    """The spare has nothing of it, not even its folder: each line is there once, and it goes on."""
    own = tmp_path / "disk"
    own.mkdir()
    log = own / "run" / "log.txt"
    with fabric.Fabric(3, own=(own,)) as hosts:
        for host in hosts.hosts[:2]:
            host.seen(log.parent).mkdir()
        job = lingering(tmp_path, hosts, *STEPS, "--log", str(log), lease=2.0, every=0.5)
        job.wait_for_line()
        job.wait_for_step(1, 20)
        hosts.hosts[1].kill()
        ends_equal(job)
        assert "host [h2] takes place [1]" in job.said("head")
        wanted = expected(60)
        for rank, host in ((0, hosts.hosts[0]), (1, hosts.hosts[2])):
            there = host.seen(log.with_name(f"log.txt.{rank}"))
            lines = there.read_text().splitlines()
            assert len(lines) == len(set(lines)) == 60
            assert set(lines) <= wanted
            assert there.stat().st_mode & 0o777 == 0o644
        assert not list(own.iterdir())


@longer
@pytest.mark.parametrize("lost", [(0, 1), (1, 2)])
def test_two_hosts_die_at_once(tmp_path: Path, lost: tuple[int, int]) -> None:
    """Each image is on two other hosts: those of all that trained, or of one and its taker."""
    with fabric.Fabric(4) as hosts:
        job = lingering(tmp_path, hosts, *STEPS, lease=2.0, every=0.5, copies=2)
        wait_for(lambda: "any [2] failure domains" in job.said("head"), 60, job.everything)
        job.wait_for_step(1, 15)
        for number in lost:
            hosts.hosts[number].kill()
        ends_equal(job)
        takers = {(0, 1): ("h2", "h3"), (1, 2): ("h3",)}[lost]
        for name in takers:  # in the order in which the leases end
            assert f"host [{name}] takes place" in job.said("head")
        assert job.said("head").count("takes place") == len(takers)


@longer
def test_one_host_more_than_copies_survive_is_said(tmp_path: Path) -> None:
    with fabric.Fabric(4) as hosts:
        job = lingering(tmp_path, hosts, *STEPS, lease=2.0, every=0.5, copies=2)
        wait_for(lambda: "any [2] failure domains" in job.said("head"), 60, job.everything)
        job.wait_for_step(1, 15)
        for number in (1, 2, 3):
            hosts.hosts[number].kill()
        assert job.wait(60) == 1
        where = "no other host has its image: host [h2] is lost, host [h3] is lost"
        assert where in job.said("head")


def _faults(folder: Path) -> list[dict[str, str]]:
    return json.loads((folder / "meta.json").read_text())["recovery"]["faults"]


@longer
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_a_host_dies_under_torchrun(
    tmp_path: Path, hosts: fabric.Fabric, lost: int, rendezvous: str
) -> None:
    """Unmodified, with its store on host 0: connections to it are there again on another host."""
    slow = tmp_path / "slow"
    slow.touch()
    steps = (*STEPS, "--slow", str(slow))
    job = several.SeveralHosts(tmp_path / "hosts", hosts, *steps, torchrun=rendezvous)
    job.wait_for_line()
    slow.unlink()
    job.wait_for_step(1, 20)
    hosts.hosts[lost].kill()
    ends_equal(job)
    assert f"host [h2] takes place [{lost}]" in job.said("head")


@longer
def test_a_host_with_two_ranks_dies(tmp_path: Path, hosts: fabric.Fabric) -> None:
    wanted = movable.undisturbed(tmp_path / "undisturbed", "--steps", "60", ranks=4)
    job = lingering(tmp_path / "hosts", hosts, *STEPS, ranks_each=2)
    job.wait_for_line()
    job.wait_for_step(1, 20)
    hosts.hosts[1].kill()
    assert job.wait(150) == 0, job.everything()
    assert job.results() == wanted, job.everything()


@longer
def test_the_host_of_rank_0_dies(tmp_path: Path, hosts: fabric.Fabric) -> None:
    job = lingering(tmp_path, hosts, *STEPS)
    job.wait_for_line()
    job.wait_for_step(0, 20)
    hosts.hosts[0].kill()
    ends_equal(job)
    assert "host [h2] takes place [0]" in job.said("head")


@longer
def test_a_host_that_was_only_cut_off_has_no_say(tmp_path: Path, hosts: fabric.Fabric) -> None:
    """It stops itself before the spare begins, and ends when it hears that it has no place."""
    job = lingering(tmp_path, hosts, *STEPS)
    job.wait_for_line()
    job.wait_for_step(1, 20)
    cut_off = hosts.hosts[1]
    cut_off.unplug()
    wait_for(lambda: "stands still until it does" in job.said("h1"), 20, job.everything)
    assert "takes place" not in job.said("head")
    wait_for(lambda: "go on" in job.said("head"), 30, job.everything)
    before = (tmp_path / "h1.stdout").read_text()
    cut_off.plug()
    wait_for(lambda: "is not this host's any more" in job.said("h1"), 20, job.everything)
    ends_equal(job)
    assert (tmp_path / "h1.stdout").read_text() == before


@longer
def test_a_link_that_comes_back_in_time_costs_nothing(tmp_path: Path, hosts: fabric.Fabric) -> None:
    """All stand still meanwhile; nobody goes back."""
    job = lingering(tmp_path, hosts, *STEPS, lease=10.0)
    job.wait_for_line()
    job.wait_for_step(1, 20)
    hosts.hosts[1].unplug()
    wait_for(lambda: "stands still until it does" in job.said("h1"), 20, job.everything)
    hosts.hosts[1].plug()
    wait_for(lambda: "the head answers" in job.said("h1"), 20, job.everything)
    ends_equal(job)
    assert "is lost" not in job.said("head")


@longer
def test_a_program_is_killed_on_one_of_several_hosts(tmp_path: Path) -> None:
    """All go back, each on its own host; no spare is needed."""
    with fabric.Fabric(2) as hosts:
        job = lingering(tmp_path, hosts, *STEPS)
        job.wait_for_line()
        job.wait_for_step(1, 20)
        job.kill_in("h1", "client")
        ends_equal(job)
        for name in ("h0", "h1"):  # of steps that were repeated, too
            lines = (tmp_path / f"{name}.stdout").read_text().splitlines()
            assert len(lines) == len(set(lines)) == 61
        assert "was killed: all go back to image" in job.said("head")


@longer
def test_a_server_dies_where_all_ranks_replay_together(tmp_path: Path) -> None:
    with fabric.Fabric(2) as hosts:
        job = lingering(tmp_path, hosts, *STEPS, replay="all")
        job.wait_for_line()
        job.wait_for_step(1, 20)
        job.kill_in("h0", "server")
        ends_equal(job)
        assert "all go back to image" in job.said("head")


@longer
def test_an_agent_dies_on_one_of_several_hosts(tmp_path: Path, hosts: fabric.Fabric) -> None:
    """The next one takes over, and nobody goes back."""
    job = lingering(tmp_path, hosts, *STEPS)
    job.wait_for_line()
    job.wait_for_step(1, 20)
    job.kill_in("h1", "agent")
    ends_equal(job)
    assert "all go back" not in job.said("head")


@longer
def test_the_head_dies_and_then_a_host(tmp_path: Path, hosts: fabric.Fabric) -> None:
    """All stand still until another head has read the ledger."""
    job = lingering(tmp_path, hosts, *STEPS)
    job.wait_for_line()
    job.wait_for_step(1, 20)
    job.head.send_signal(signal.SIGKILL)
    job.head.wait()
    wait_for(lambda: "stands still until it does" in job.said("h0"), 20, job.everything)
    job.start_head()
    wait_for(lambda: "the head answers" in job.said("h0"), 20, job.everything)
    hosts.hosts[1].kill()
    ends_equal(job)
    assert "host [h2] takes place [1]" in job.said("head")


@longer
@pytest.mark.parametrize("stays_away", [False, True])
def test_the_head_is_away_while_criu_restores(
    tmp_path: Path, hosts: fabric.Fabric, stays_away: bool
) -> None:
    """The place stands still, and CRIU does not; after the lease its restore is begun again."""
    criu = several.HeldCriu(tmp_path)
    lease = 6.0 if stays_away else 20.0
    job = lingering(tmp_path / "hosts", hosts, *STEPS, lease=lease, criu=criu.program)
    job.wait_for_line()
    job.wait_for_step(1, 15)
    criu.hold()
    job.kill_in("h1", "client")
    wait_for(lambda: criu.holds == 2, 60, job.everything)
    job.head.send_signal(signal.SIGSTOP)
    given_up = "its restore is given up for now"
    for name in ("h0", "h1"):
        sentence = given_up if stays_away else "stands still until it does"
        wait_for(lambda n=name, s=sentence: s in job.said(n), 30, job.everything)
    criu.let_go()
    if not stays_away:
        wait_for(lambda: criu.ended == 2, 30, job.everything)
    job.head.send_signal(signal.SIGCONT)
    ends_equal(job)
    for name in ("h0", "h1"):
        assert ("is restored once more" in job.said(name)) == stays_away
    assert "is lost" not in job.said("head")


@longer
def test_one_of_two_heads_dies_and_then_a_host(tmp_path: Path, need: Need) -> None:
    """With a ledger in etcd the second one decides within the lease: nobody stands still."""
    why = etcd_server.lacks()
    need("etcd", not why, why)
    with fabric.Fabric(3) as hosts:
        inside = ("nsenter", f"--net=/run/netns/{hosts.switch}", "--")
        etcd = etcd_server.Etcd(tmp_path / "etcd", address=fabric.SWITCH, wrapper=inside)
        slow = tmp_path / "slow"
        steps = (*STEPS, "--slow", str(slow))
        job = several.SeveralHosts(tmp_path / "hosts", hosts, *steps, lease=10.0, etcd=etcd.url)
        job.wait_for_line()
        job.wait_for_step(1, 15)
        slow.touch()
        job.head.send_signal(signal.SIGKILL)
        wait_for(lambda: "waits at" in job.said("second"), 30, job.everything)
        wait_for(lambda: "is the line of all" in job.said("second"), 60, job.everything)
        hosts.hosts[1].kill()
        slow.unlink()
        assert job.second.wait(180) == 0, job.everything()
        assert job.results() == expected(60), job.everything()
        said = job.said("second")
        assert "host [h2] takes place [1]" in said
        assert said.count("all go back") == 1
        assert "stands still" not in job.said("h0")
        etcd.end()


@longer
def test_without_a_spare_the_loss_ends_the_job_and_says_so(tmp_path: Path) -> None:
    with fabric.Fabric(2) as hosts:
        job = lingering(tmp_path, hosts, *STEPS)
        job.wait_for_line()
        job.wait_for_step(1, 20)
        hosts.hosts[1].kill()
        assert job.wait(60) == 1
        assert "and no other host has its image" in job.said("head")
        wait_for(lambda: job.runs[0].poll() is not None, 30, job.everything)
