"""A host is drained while its job trains: losses and parameters are those without it.

The first test runs wherever hosts can be made; the others only where PYFT_REQUIRE names nodes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from job import wait_for
from required import refuses

sys.path.insert(0, str(Path(__file__).parent))
import fabric  # noqa: E402
import movable  # noqa: E402
import several  # noqa: E402

STEPS = ("--steps", "40")
Need = Callable[[str, bool, str], None]
longer = pytest.mark.skipif(
    not refuses("[nodes]: "), reason="[nodes]: it takes half a minute; make test-nodes runs it"
)


@pytest.fixture(autouse=True)
def _kernel(need: Need) -> None:
    why = movable.lacks() or fabric.lacks()
    need("nodes", not why, why)


def started(folder: Path, hosts: fabric.Fabric, **how: Any) -> several.SeveralHosts:
    """Return a job that trains, and does not end before `ends_equal`."""
    slow = folder / "slow"
    slow.touch()
    more = ("--slow", str(slow))
    job = several.SeveralHosts(folder / "hosts", hosts, *STEPS, *more, every=60.0, **how)
    job.wait_for_step(1, 1)
    return job


def ends_equal(job: several.SeveralHosts, folder: Path) -> None:
    """Let it end, wait for that, and compare with a run that nothing has happened to."""
    (folder / "slow").unlink()
    assert job.wait(120) == 0, job.everything()
    wanted = movable.undisturbed(folder / "undisturbed", "--steps", "40")
    assert job.results() == wanted, job.everything()


def entries(job: several.SeveralHosts, kind: str) -> list[dict]:
    """Return the head's decisions of a kind."""
    ledger = (job.folder / "ledger").read_text().splitlines()
    return [entry for entry in map(json.loads, ledger) if entry["kind"] == kind]


def test_a_host_is_drained(tmp_path: Path) -> None:
    """Its place goes to the spare, no step is repeated, and nothing of it runs any more."""
    with fabric.Fabric(3) as hosts:
        job = started(tmp_path, hosts)
        ordered = job.ask("drain", "--host", "h1")
        said, _ = ordered.communicate(timeout=60)
        assert ordered.returncode == 0, said + job.everything()
        assert "host h1 is drained: place [1] is on host [h2]" in said
        place = job.runs[-1]
        wait_for(lambda: place.poll() is not None, 10, job.everything)
        assert place.wait() == 0, job.everything()
        wait_for(lambda: processes(hosts.hosts[1]) == ["1"], 5, job.everything)
        status, _ = job.ask("status").communicate(timeout=80)
        assert "place 1 on host h2, life 2: runs" in status
        ends_equal(job, tmp_path)
    assert_no_step_twice(job)


def assert_no_step_twice(job: several.SeveralHosts) -> None:
    """No line stands twice, on whichever hosts."""
    printed = [job.folder / f"{host.name}.stdout" for host in job.fabric.hosts]
    lines = Counter(line for p in printed for line in p.read_text().splitlines())
    assert set(lines.values()) == {1}


@longer
def test_a_rank_is_moved_to_the_spare_that_was_named(tmp_path: Path) -> None:
    """Not to the one that is chosen without a name; no step is repeated."""
    with fabric.Fabric(4) as hosts:
        job = started(tmp_path, hosts)
        refused = job.ask("move", "--rank", "7", "--to", "h3")
        said, _ = refused.communicate(timeout=60)
        assert refused.returncode == 2
        assert "rank [7] is none of this job: those known are [0] to [1]" in said
        ordered = job.ask("move", "--rank", "0", "--to", "h3")
        said, _ = ordered.communicate(timeout=60)
        assert ordered.returncode == 0, said + job.everything()
        assert "rank 0: place 0 goes from host h0 to host h3 at the next line" in said
        assert "rank 0 is moved: place [0] is on host [h3]" in said
        ends_equal(job, tmp_path)
    assert [entry["host"] for entry in entries(job, "claim")][2:] == ["h3"]
    assert_no_step_twice(job)


def processes(host: fabric.Host) -> list[str]:
    """Return the numbers of all that it has: 1 is its first one, which reaps those that have ended."""
    return [p.name for p in Path(f"/proc/{host.pid}/root/proc").iterdir() if p.name.isdigit()]


def drained(tmp_path: Path, hosts: fabric.Fabric, **how: Any) -> several.SeveralHosts:
    """Return a job whose host h1 is being drained."""
    job = started(tmp_path, hosts, **how)
    ordered = job.ask("drain", "--host", "h1", "--no-wait")
    said, _ = ordered.communicate(timeout=60)
    assert ordered.returncode == 0, said + job.everything()
    return job


def heard(job: several.SeveralHosts, sentence: str) -> None:
    """Wait until the head has said something."""
    wait_for(lambda: sentence in job.said("head"), 60, job.everything)


@longer
def test_the_spare_dies_meanwhile(tmp_path: Path) -> None:
    """The old host has its image, and goes on itself; no step is repeated."""
    with fabric.Fabric(3) as hosts:
        job = drained(tmp_path, hosts)
        heard(job, "place [1] is on host [h2]")
        hosts.hosts[2].kill()
        ends_equal(job, tmp_path)
    assert "host [h1] takes place [1]" in job.said("head")
    assert "this host takes place [1]" in job.said("h1")
    assert [entry["host"] for entry in entries(job, "claim")][2:] == ["h2", "h1"]


@longer
def test_the_host_dies_meanwhile(tmp_path: Path) -> None:
    with fabric.Fabric(3) as hosts:
        job = drained(tmp_path, hosts)
        heard(job, "host [h1] ends place [1]")
        hosts.hosts[1].kill()
        ends_equal(job, tmp_path)
    assert "host [h2] takes place [1]" in job.said("head")
    assert len(entries(job, "back")) == 1


@longer
def test_the_head_dies_meanwhile(tmp_path: Path) -> None:
    """The next one reads how far the drain was, and goes on with it."""
    with fabric.Fabric(3) as hosts:
        job = drained(tmp_path, hosts, lease=10.0)  # longer than the next head needs to start
        heard(job, "host [h1] ends place [1]")
        job.head.kill()
        job.head.wait()
        job.start_head()
        ends_equal(job, tmp_path)
    assert entries(job, "chosen")[-1]["host"] == "h2"
    assert "host [h1] is drained: its place [1] is on host [h2]" in job.said("head")


@longer
def test_the_host_of_torchruns_store_is_drained(tmp_path: Path) -> None:
    with fabric.Fabric(3) as hosts:
        job = started(tmp_path, hosts, torchrun="static")
        ordered = job.ask("drain", "--host", "h0")
        said, _ = ordered.communicate(timeout=90)
        assert ordered.returncode == 0, said + job.everything()
        ends_equal(job, tmp_path)
    assert "its place [0] is on host [h2]" in job.said("head")
