"""examples/ssh/start.sh with real sshd on hosts of a fabric: one dies, and the results are equal."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
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

SCRIPT = ROOT / "examples" / "ssh" / "start.sh"
STEPS = ("--steps", "60", "--pause", "0.1")
SSHD = "/usr/sbin/sshd"
Need = Callable[[str, bool, str], None]
pytestmark = pytest.mark.skipif(
    not refuses("[nodes]: "), reason="[nodes]: it takes half a minute; make test-nodes runs it"
)


@pytest.fixture(autouse=True)
def _needs(need: Need) -> None:
    has = all(shutil.which(name) for name in (SSHD, "ssh", "ssh-keygen"))
    need("ssh", has, "Debian's openssh-server or openssh-client is missing")
    why = movable.lacks() or fabric.lacks()
    need("nodes", not why, why)


def _start_servers(folder: Path, hosts: fabric.Fabric) -> str:
    """Start an sshd on each host; return the command that reaches them."""
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    (folder / "config").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPidFile none\n"
    )
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for host in hosts.hosts:
        sshd = [
            SSHD,
            "-D",
            "-e",
            "-f",
            str(folder / "config"),
            "-o",
            f"ListenAddress={host.address}",
        ]
        host.start(sshd, dict(os.environ), folder / f"sshd-{host.name}")
        said = folder / f"sshd-{host.name}.stderr"
        wait_for(lambda said=said: said.exists() and "listening" in said.read_text(), 20, str(said))
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
    return " ".join(["ssh", f"-i {folder}/user", *(f"-o {one}" for one in options)])


def test_a_host_dies_in_a_job_that_ssh_has_started(tmp_path: Path) -> None:
    with fabric.Fabric(3) as hosts:
        keys, folder = tmp_path / "keys", tmp_path / "job"
        keys.mkdir()
        folder.mkdir()
        ssh = _start_servers(keys, hosts)
        (folder / "hosts").write_text("".join(f"{one.address}\n" for one in hosts.hosts))
        train = [sys.executable, movable.TRAIN, "--store", str(tmp_path / "store"), *STEPS]
        command = f"RANK=$NODE_RANK LOCAL_RANK=0 WORLD_SIZE=2 exec {shlex.join(train)}"
        inside = ["nsenter", f"--net=/run/netns/{hosts.switch}", "--"]
        environment = os.environ | {
            "PATH": f"{Path(PYFT).parent}:{os.environ['PATH']}",
            "SSH": ssh,
            "PYFT_GPUS": "soft:1",
            "HEAD_OPTIONS": "--lease 3 --image-every 1",
        }
        with open(folder / "start.out", "ab") as out:
            started = subprocess.Popen(
                [*inside, str(SCRIPT), "hosts", "2", "sh", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

        def text(name: str) -> str:
            path = folder / f"{name}.out"
            return path.read_text() if path.exists() else ""

        def everything() -> str:
            return "\n".join(f"--- {p.name}\n{p.read_text()[-3000:]}" for p in folder.glob("*.out"))

        wait_for(lambda: "is the line of all" in text("start"), 60, everything)
        wait_for(lambda: "rank=1 step=15 " in text("place-1"), 60, everything)
        hosts.hosts[1].kill()
        assert started.wait(240) == 0, everything()
        assert "host [host-2] takes place [1]" in text("start")
        lines = {
            line
            for name in ("place-0", "place-1", "spare-2")
            for line in text(name).splitlines()
            if line.startswith("rank=")
        }
        with TemporaryDirectory() as other:
            wanted = movable.undisturbed(Path(other), "--steps", "60")
        assert wanted
        assert lines == wanted, everything()
