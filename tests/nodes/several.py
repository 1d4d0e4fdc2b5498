"""Trainings on several hosts, of which one is lost: for the tests, the sweep and the demo."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import movable
from fabric import SWITCH, Fabric, Host
from job import PYFT, wait_for

from pyft.images import criu

PORT = 29471


_CRIU = """#!/bin/sh
# CRIU, whose restores stand still in their last stage as long as the test says.
[ "$1" = restore ] || exec {criu} "$@"
exec {criu} "$@" --action-script {script}
"""
_SCRIPT = """#!/bin/sh
case $CRTOOLS_SCRIPT_ACTION in
post-restore)
    [ -e {folder}/hold ] && echo >>{folder}/holds
    while [ -e {folder}/hold ]; do sleep 0.05; done ;;
post-resume) echo >>{folder}/ended ;;
esac
"""


class HeldCriu:
    """CRIU whose restores can be held, with all processes there and none of them gone on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.program, script = folder / "criu", folder / "criu-actions"
        names = {"criu": criu.find(), "script": script, "folder": folder}
        for path, text in ((self.program, _CRIU), (script, _SCRIPT)):
            path.write_text(text.format(**names))
            path.chmod(0o755)

    def hold(self) -> None:
        """Hold the restores that are begun from now on."""
        (self._folder / "hold").touch()

    def let_go(self) -> None:
        """Let all go on."""
        (self._folder / "hold").unlink()

    @property
    def holds(self) -> int:
        """Return how many have come so far that they are held."""
        return self._count("holds")

    @property
    def ended(self) -> int:
        """Return how many have restored all."""
        return self._count("ended")

    def _count(self, name: str) -> int:
        path = self._folder / name
        return len(path.read_text().splitlines()) if path.exists() else 0


class SeveralHosts:
    """A head, `places` hosts that train, and spares."""

    def __init__(
        self,
        folder: Path,
        fabric: Fabric,
        *arguments: str,
        places: int = 2,
        lease: float = 3.0,
        every: float = 1.0,
        ranks_each: int = 1,
        torchrun: str = "",
        copies: int = 1,
        etcd: str = "",
        spares: int = 0,
        replay: str = "",
        inject: tuple[int, str] | None = None,
        lingers: bool = False,
        late: bool = False,
        criu: Path | None = None,
        program: str = movable.TRAIN,
    ) -> None:
        """`torchrun`: with that rendezvous it starts the ranks of a place; else a shell does.

        `etcd`: where the ledger is, and then a second head waits; else it is a file. `spares`: GPUs
        of each host that are not used; `replay`: PYFT_REPLAY; `inject`: a fault of a place.
        `lingers`: the training is not over before it is waited for. `late`: spares come when told.
        `criu`: CRIU's program. `program`: that trains.
        """
        self._inject = inject
        self.folder, self.fabric, self._ranks_each = folder, fabric, ranks_each
        self._spares = spares
        (folder / "meet").mkdir(parents=True)
        self.environment = os.environ | {
            "PYFT_TOKEN": secrets.token_hex(16),
            "OMP_NUM_THREADS": "1",
            "XDG_STATE_HOME": str(folder / "state"),
        }
        if criu:
            self.environment["PYFT_CRIU"] = str(criu)
        if replay:
            self.environment["PYFT_REPLAY"] = replay
        self._head_arguments = [
            *(PYFT, "head", "--places", str(places)),
            *("--ledger", etcd or str(folder / "ledger"), "--lease", f"{lease:g}"),
            *("--image-every", f"{every:g}", "--copies", str(copies)),
        ]
        self._heads = [f"{SWITCH}:{PORT}"]
        self.start_head()
        if etcd:
            self._heads.append(f"{SWITCH}:{PORT + 1}")
            self.second = self._start_head(self._heads[1], "second")
            wait_for(lambda: "this one waits" in self.said("second"), 20, self.everything)
        self.runs: list[subprocess.Popen[bytes]] = []
        self._late = fabric.hosts[places:] if late else []
        for host in fabric.hosts[places:] if not late else []:
            self.runs.append(self._start_spare(host))
        store = ("--store", str(folder / "meet" / "store"))
        self._linger = folder / "linger"
        if lingers:
            self._linger.touch()
        arguments = (*arguments, "--linger", str(self._linger))
        training = [program, *(() if torchrun else store), *arguments]
        for place, host in enumerate(fabric.hosts[:places]):
            launcher = self._shell(places, place)
            if torchrun:
                launcher = self._torchrun(places, place, torchrun)
            self.runs.append(self._start_place(host, place, [*launcher, *training]))

    def start_head(self) -> None:
        """Start the head, or another one after it has died."""
        self.head = self._start_head(self._heads[0], "head")
        wait_for(lambda: "waits at" in self.said("head"), 20, self.everything)

    def _start_head(self, where: str, name: str) -> subprocess.Popen[bytes]:
        arguments = [*self._head_arguments, "--listen", where]
        return self.fabric.start_head(arguments, self.environment, self.folder / name)

    def _start_place(self, host: Host, place: int, command: list[str]) -> subprocess.Popen[bytes]:
        options = ["--head", ",".join(self._heads), "--place", str(place), "--host", host.name]
        options += ["--address", host.address, "--gpus", f"soft:{self._ranks_each}"]
        options += ["--spares", str(self._spares)] if self._spares else []
        if self._inject and self._inject[0] == place:
            options += ["--inject", self._inject[1]]
        options += ["--log-dir", str(self.folder / f"log-{host.name}")]
        arguments = [PYFT, "run", *options, "--", *command]
        return host.start(arguments, self.environment, self.folder / host.name)

    def _torchrun(self, places: int, place: int, rendezvous: str) -> list[str]:
        """Return torchrun with the static rendezvous, which it has by default, or with c10d's."""
        first, own = self.fabric.hosts[0].address, self.fabric.hosts[place].address
        program = str(Path(sys.executable).with_name("torchrun"))
        each = ("--nnodes", str(places), "--nproc-per-node", str(self._ranks_each))
        if rendezvous == "static":
            master = ("--master-addr", first, "--master-port", "29500")
            return [program, *each, "--node-rank", str(place), *master]
        return [
            *(program, *each, "--rdzv-backend", "c10d", "--rdzv-id", "job"),
            *("--rdzv-endpoint", f"{first}:29400", "--rdzv-conf", f"is_host={int(place == 0)}"),
            *("--local-addr", own),
        ]

    def _shell(self, places: int, place: int) -> list[str]:
        """Return a script that starts the ranks of a place, and ends as the first one that fails."""
        first = place * self._ranks_each
        starts = [
            f'RANK={first + n} LOCAL_RANK={n} "$@" & p{n}=$!' for n in range(self._ranks_each)
        ]
        waits = [f"wait $p{n} || exit" for n in range(self._ranks_each)]
        world = f"export WORLD_SIZE={places * self._ranks_each}"
        script = "\n".join([world, *starts, *waits])
        return ["sh", "-c", script, "sh", sys.executable]

    def _start_spare(self, host: Host) -> subprocess.Popen[bytes]:
        arguments = [PYFT, "host", "--head", ",".join(self._heads), "--address", host.address]
        arguments += ["--host", host.name, "--folder", str(self.folder)]
        return host.start(arguments, self.environment, self.folder / host.name)

    def start_late(self) -> None:
        """Start the spare hosts that come late."""
        self.runs += [self._start_spare(host) for host in self._late]

    def start_again(self, host: Host) -> None:
        """Start a host that was lost; it is a spare host then."""
        host.reboot()
        self.runs.append(self._start_spare(host))

    def said(self, name: str) -> str:
        """Return what a host, or the head, has said on stderr."""
        path = self.folder / f"{name}.stderr"
        return path.read_text() if path.exists() else ""

    def everything(self) -> str:
        """Return what all have said."""
        names = ("head", "second", *(host.name for host in self.fabric.hosts))
        return "\n".join(f"--- {name}\n{self.said(name)}" for name in names)

    def results(self) -> set[str]:
        """Return losses and hashes of all hosts; repeated lines count once, if they are equal."""
        paths = [self.folder / f"{host.name}.stdout" for host in self.fabric.hosts]
        return {line for path in paths if path.exists() for line in path.read_text().splitlines()}

    def wait_for_step(self, rank: int, step: int, seconds: float = 60) -> None:
        """Wait until a rank has printed a step."""
        text = f"rank={rank} step={step} "
        wait_for(lambda: any(text in line for line in self.results()), seconds, self.everything)

    def wait_for_line(self, count: int = 1, seconds: float = 60) -> None:
        """Wait until so many images have become the line of all."""
        text = "is the line of all"
        wait_for(lambda: self.said("head").count(text) >= count, seconds, self.everything)

    def ask(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that calls the head, where that is."""
        return subprocess.Popen(
            [
                *("nsenter", f"--net=/run/netns/{self.fabric.switch}", "--", PYFT, *words),
                *("--head", ",".join(self._heads)),
            ],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def kill_in(self, name: str, *roles: str) -> None:
        """Kill client, server or agent of a host."""
        found = self._pids(self.folder / f"log-{name}")
        pids = [str(found[role]) for role in roles]
        subprocess.run([*self._inside(name), "kill", "-KILL", *pids], check=True)

    def clocks_at(self, name: str, place: int) -> dict[str, int]:
        """Return for each role of a place that came to a host what its clocks add, in seconds."""
        found = {}
        meta = next(self.folder.glob(f"**/place-{place}/meta.json"))
        wait_for(lambda: json.loads(meta.read_text())["live"], 20, self.everything)
        for role, pid in self._pids(meta.parent).items():
            command = [*self._inside(name), "cat", f"/proc/{pid}/timens_offsets"]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[role] = int(said.split()[1])
        return found

    @staticmethod
    def _pids(folder: Path) -> dict[str, int]:
        meta = json.loads((folder / "meta.json").read_text())
        live = meta["live"][0]
        return {
            "agent": meta["agent_pid"],
            "client": live["pid"],
            "server": live["server_pid"],
        }

    def _inside(self, name: str) -> list[str]:
        host = next(host for host in self.fabric.hosts if host.name == name)
        return ["nsenter", "-t", str(host.pid), "-p", "-m"]

    def wait(self, seconds: float = 120) -> int:
        """Return the exit code of the head."""
        self._linger.unlink(missing_ok=True)
        return self.head.wait(seconds)
