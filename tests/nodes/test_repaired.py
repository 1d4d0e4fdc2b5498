"""A fault of one host of several is repaired there: all others only wait, and no image is restored."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from job import wait_for
from required import refuses

sys.path.insert(0, str(Path(__file__).parent))
import fabric  # noqa: E402
import movable  # noqa: E402
import several  # noqa: E402

STEPS = ("--steps", "60", "--pause", "0.1")
ALONE = "it is replaced alone, all others go on"
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
def expected(ranks: int = 2) -> frozenset[str]:
    """Return the results without any fault, on one host."""
    with TemporaryDirectory() as folder:
        return frozenset(movable.undisturbed(Path(folder), *STEPS[:2], ranks=ranks))


def faults(folder: Path) -> list[dict[str, str]]:
    return json.loads((folder / "meta.json").read_text())["recovery"]["faults"]


def ends_equal(job: several.SeveralHosts, ranks: int = 2) -> None:
    """Wait for the end: results are equal, and nobody has gone back."""
    assert job.wait(120) == 0, job.everything()
    assert job.results() == expected(ranks), job.everything()
    assert "all go back" not in job.said("head"), job.everything()


def repaired(job: several.SeveralHosts, **wanted: list[str]) -> None:
    """Compare the faults of each host, by name: each is recovered, and its replay was exact."""
    alone = 0
    for host in job.fabric.hosts:
        found = faults(job.folder / f"log-{host.name}")
        assert [one["fault"] for one in found] == wanted.get(host.name, []), found
        assert all((one["outcome"], one["verdict"]) == ("recovered", "exact") for one in found)
        alone += len(found)
    assert job.said("head").count(ALONE) == alone


@longer
@pytest.mark.parametrize("place", [0, 1])
def test_a_server_is_killed(tmp_path: Path, place: int) -> None:
    with fabric.Fabric(2) as hosts:
        job = several.SeveralHosts(tmp_path, hosts, *STEPS)
        job.wait_for_line()
        job.wait_for_step(1, 10)
        job.kill_in(f"h{place}", "server")
        ends_equal(job)
        repaired(job, **{f"h{place}": ["server-killed"]})


@longer
def test_a_server_is_killed_before_there_is_an_image(tmp_path: Path) -> None:
    with fabric.Fabric(2) as hosts:
        job = several.SeveralHosts(tmp_path, hosts, *STEPS, every=3600)
        job.wait_for_step(1, 3)
        job.kill_in("h1", "server")
        ends_equal(job)
        repaired(job, h1=["server-killed"])


@longer
def test_a_gpu_is_lost_and_its_host_has_another_one(tmp_path: Path) -> None:
    with fabric.Fabric(2) as hosts:
        lost = (1, "gpu-lost,rank=1,step=12")
        job = several.SeveralHosts(tmp_path, hosts, *STEPS, spares=1, inject=lost)
        ends_equal(job)
        repaired(job, h1=["gpu-lost"])
        (fault,) = faults(tmp_path / "log-h1")
        assert fault["gpu_to"] != fault["gpu_from"]


@longer
@pytest.mark.parametrize("late", [False, True])
def test_a_gpu_is_lost_and_only_another_host_has_one(tmp_path: Path, late: bool) -> None:
    """All go back to the line, and the fault comes once. `late`: the other host comes after it."""
    with fabric.Fabric(3) as hosts:
        slow, fault = tmp_path / "slow", "gpu-lost,rank=1,step=20"
        slow.touch()
        more = ("--slow", str(slow))
        job = several.SeveralHosts(
            tmp_path, hosts, *STEPS, *more, lease=60.0, inject=(1, fault), late=late
        )
        if late:
            wait_for(lambda: "no GPU is left for rank [1]" in job.said("h1"), 90, job.everything)
            job.start_late()
        wait_for(lambda: "all have come back" in job.said("head"), 90, job.everything)
        slow.unlink()
        assert job.wait(120) == 0, job.everything()
        assert job.results() == expected(), job.everything()
        codes = [run.wait(20) for run in job.runs]
    assert codes == [0, 0, 0], job.everything()  # 79: the fault has not happened
    assert job.said("head").count("all go back") == 1
    assert ("host [h2] gets its image" in job.said("head")) == late
    assert "place [1] is on host [h2]" in job.said("h1")
    (fault,) = faults(tmp_path / "log-h1")
    assert (fault["fault"], fault["outcome"]) == ("gpu-lost", "moved")


@longer
def test_servers_of_both_hosts_are_killed_at_once(tmp_path: Path) -> None:
    with fabric.Fabric(2) as hosts:
        job = several.SeveralHosts(tmp_path, hosts, *STEPS)
        job.wait_for_step(1, 10)
        for name in ("h0", "h1"):
            job.kill_in(name, "server")
        ends_equal(job)
        repaired(job, h0=["server-killed"], h1=["server-killed"])


@longer
def test_two_ranks_each_one_killed_and_then_another_one(tmp_path: Path) -> None:
    wanted = movable.undisturbed(tmp_path / "undisturbed", *STEPS[:2], ranks=4)
    with fabric.Fabric(2) as hosts:
        job = several.SeveralHosts(tmp_path / "hosts", hosts, *STEPS, ranks_each=2)
        for name, step in (("h1", 10), ("h0", 25)):
            job.wait_for_step(1, step)
            job.kill_in(name, "server")
        assert job.wait(150) == 0, job.everything()
        assert job.results() == wanted, job.everything()
        assert "all go back" not in job.said("head")
        repaired(job, h0=["server-killed"], h1=["server-killed"])


@longer
def test_an_agent_is_killed_and_then_a_server_of_the_other_host(tmp_path: Path) -> None:
    """What the next agent tells the head is all that the one before knew."""
    with fabric.Fabric(2) as hosts:
        job = several.SeveralHosts(tmp_path, hosts, *STEPS)
        job.wait_for_step(1, 10)
        job.kill_in("h1", "agent")
        wait_for(lambda: "a new agent" in job.said("h1"), 30, job.everything)
        job.kill_in("h0", "server")
        ends_equal(job)
        repaired(job, h0=["server-killed"])


@longer
def test_the_head_dies_and_then_a_server(tmp_path: Path) -> None:
    with fabric.Fabric(2) as hosts:
        job = several.SeveralHosts(tmp_path, hosts, *STEPS, lease=10.0)
        job.wait_for_step(1, 10)
        job.head.kill()
        job.head.wait()
        job.kill_in("h1", "server")
        job.start_head()
        ends_equal(job)
        repaired(job, h1=["server-killed"])


@longer
def test_a_server_and_then_a_host(tmp_path: Path) -> None:
    """What was repaired alone is in the next image, and that is restored."""
    with fabric.Fabric(3) as hosts:
        slow = tmp_path / "slow"
        slow.touch()
        job = several.SeveralHosts(tmp_path, hosts, *STEPS, "--slow", str(slow), lease=4.0)
        job.wait_for_line()
        job.kill_in("h0", "server")
        wait_for(lambda: "goes on after" in job.said("h0"), 60, job.everything)
        lines = job.said("head").count("is the line of all")
        job.wait_for_line(lines + 1)
        hosts.hosts[1].kill()
        wait_for(lambda: "all have come back" in job.said("head"), 60, job.everything)
        slow.unlink()
        assert job.wait(120) == 0, job.everything()
        assert job.results() == expected(), job.everything()
        assert job.said("head").count("all go back") == 1
        assert job.said("head").count(ALONE) == 1


@longer
def test_agent_and_server_are_killed_at_once(tmp_path: Path) -> None:
    """The next agent asks the head about it."""
    with fabric.Fabric(2) as hosts:
        job = several.SeveralHosts(tmp_path, hosts, *STEPS)
        job.wait_for_step(1, 10)
        job.kill_in("h1", "agent", "server")
        ends_equal(job)
        repaired(job, h1=["server-killed"])
