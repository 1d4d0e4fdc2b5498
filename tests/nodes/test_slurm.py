"""examples/slurm/train.sbatch under a real Slurm: a host dies, and neither step nor job ends."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from job import PYFT, ROOT, wait_for
from required import refuses

sys.path.insert(0, str(Path(__file__).parent))
import fabric  # noqa: E402
import movable  # noqa: E402
import slurm_cluster  # noqa: E402

SCRIPT = ROOT / "examples" / "slurm" / "train.sbatch"
STEPS = ("--steps", "60", "--pause", "0.1")
Need = Callable[[str, bool, str], None]
pytestmark = pytest.mark.skipif(
    not refuses("[nodes]: "), reason="[nodes]: it takes a minute; make test-nodes runs it"
)


@pytest.fixture(autouse=True)
def _needs(need: Need) -> None:
    why = slurm_cluster.lacks()
    need("slurm", not why, why)
    why = movable.lacks() or fabric.lacks()
    need("nodes", not why, why)


def test_a_host_dies_in_a_job_of_slurm(tmp_path: Path) -> None:
    """The first host has script and head, two train, the last is spare."""
    with fabric.Fabric(4) as hosts:
        cluster = slurm_cluster.Cluster(hosts, tmp_path / "slurm")
        try:
            _lose_a_host(tmp_path, hosts, cluster)
        finally:
            cluster.end()


def _lose_a_host(tmp_path: Path, hosts: fabric.Fabric, cluster: slurm_cluster.Cluster) -> None:
    (tmp_path / "meet").mkdir()
    train = [sys.executable, movable.TRAIN, "--store", str(tmp_path / "meet" / "store"), *STEPS]
    command = f"RANK=$NODE_RANK LOCAL_RANK=0 WORLD_SIZE=2 exec {shlex.join(train)}"
    said = cluster.ask(
        *("sbatch", "--nodes=4", "--output=job.out", str(SCRIPT), "2", "sh", "-c", command),
        PATH=f"{Path(PYFT).parent}:{os.environ['PATH']}",
        PYFT_GPUS="soft:1",
        HEAD_OPTIONS="--lease 3 --image-every 1",
        OMP_NUM_THREADS="1",
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    assert "Submitted batch job 1" in said, said
    out = tmp_path / "slurm" / "job.out"
    place, spare = (tmp_path / "slurm" / f"1-{name}.out" for name in ("place-1", "spare-0"))

    def text(path: Path) -> str:
        return path.read_text() if path.exists() else ""

    wait_for(lambda: "is the line of all" in text(out), 90, cluster.everything)
    assert "any [1] failure domains" in text(out)
    wait_for(lambda: "rank=1 step=15 " in text(place), 60, cluster.everything)
    hosts.hosts[2].kill()
    wait_for(lambda: "host [h3] takes place [1]" in text(out), 60, cluster.everything)
    assert "host [h2] of place [1] is lost" in text(out)  # the names are Slurm's
    state = ("scontrol", "show", "job", "1")

    def is_over() -> bool:
        """Slurm says COMPLETING as long as it waits for the host that is lost."""
        said = cluster.ask(*state)
        return "JobState=RUNNING" not in said and "JobState=COMPLETING" not in said

    wait_for(is_over, 120, cluster.everything)
    words = cluster.ask(*state).split()
    ended = {word for word in words if word.startswith(("JobState=", "ExitCode="))}
    assert ended == {"JobState=COMPLETED", "ExitCode=0:0"}, cluster.everything()
    lines = {
        line
        for path in (tmp_path / "slurm" / "1-place-0.out", place, spare)
        for line in text(path).splitlines()
        if line.startswith(("rank=", "hash"))
    }
    with TemporaryDirectory() as folder:
        wanted = movable.undisturbed(Path(folder), "--steps", "60")
    assert wanted
    assert lines == wanted, cluster.everything()
