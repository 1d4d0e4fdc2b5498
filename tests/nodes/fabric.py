"""Hosts made of namespaces on this machine, joined by a bridge: for tests of jobs on several hosts.

Each host has network, PIDs, clocks and mounts of its own, with its own /dev/shm. All see the same files,
as with a shared file system; a folder may be each host's own, as a disk of its own is. `kill` is a power
failure: the link goes down first, so nobody hears of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

NETWORK = "10.77.0"
SWITCH = f"{NETWORK}.254"  # where the head runs
READY_S = 10.0
UP_S = 500_000  # by which each host has started earlier than the one before
_INIT = """
import os, signal, subprocess, sys
for folder in ("/dev/shm", *sys.argv[2:]):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
os.write(1, b"up")
os.close(1)
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        signal.sigtimedwait([signal.SIGCHLD], 0.05)
"""


def lacks() -> str:
    """Return what is missing for hosts of namespaces, nothing if all is there."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for program in ("ip", "unshare", "nsenter", "mount"):
        if not shutil.which(program):
            return f"the program [{program}] is missing"
    try:
        with Fabric(1):
            return ""
    except (OSError, subprocess.SubprocessError, FabricError) as error:
        return f"namespaces cannot be made: {error}"


class FabricError(Exception):
    """Something of it cannot be made."""


class Host:
    """One of the hosts."""

    def __init__(self, fabric: Fabric, number: int) -> None:
        self.number = number
        self.name = f"h{number}"
        self.address = f"{NETWORK}.{number + 1}"
        self._fabric = fabric
        self.netns = f"{fabric.name}-{self.name}"
        self.up = UP_S * (number + 1)  # seconds that it has run before the machine has
        self._init: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Make its namespaces and start its first process."""
        port = f"p{self.number}"
        _ip("netns", "add", self.netns)
        _ip("link", "add", port, "netns", self._fabric.switch, "type", "veth", *self._peer())
        _ip("-n", self._fabric.switch, "link", "set", port, "master", "br0", "up")
        _ip("-n", self.netns, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", self.netns, "link", "set", link, "up")
        self._boot()

    def _boot(self) -> None:
        self._init = subprocess.Popen(
            [
                *("nsenter", f"--net=/run/netns/{self.netns}"),
                *("unshare", "--pid", "--fork", "--mount", "--mount-proc", "--time"),
                *("--monotonic", str(self.up), "--boottime", str(self.up)),
                *("--propagation", "private", sys.executable, "-I", "-c", _INIT, self.name),
                *(str(folder) for folder in self._fabric.own),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # unshare complains about signal masks at its end
        )
        assert self._init.stdout
        if self._init.stdout.read(2) != b"up":
            raise FabricError(f"host [{self.name}] does not start")

    def _peer(self) -> tuple[str, ...]:
        return ("peer", "name", "eth0", "netns", self.netns)

    @property
    def pid(self) -> int:
        """Return its first process, as this machine numbers it."""
        assert self._init
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children")
        return int(children.read_text().split()[0])

    def seen(self, path: Path) -> Path:
        """Return where this machine finds a file of the host, as long as that has its power."""
        return Path(f"/proc/{self.pid}/root{path}")

    def start(
        self, arguments: list[str], environment: dict[str, str], out: Path
    ) -> subprocess.Popen[bytes]:
        """Start a process there, with output to files out.stdout and out.stderr.

        They are opened there: CRIU finds no mount of another namespace.
        """
        where = ("-t", str(self.pid), "-p", "-m", "-n", "-T", f"--wdns={out.parent}")
        opened = f'exec "$@" </dev/null >>{out.name}.stdout 2>>{out.name}.stderr'
        return subprocess.Popen(
            ["nsenter", *where, "--", "setsid", "--wait", "sh", "-c", opened, "sh", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def unplug(self) -> None:
        """Cut its link: nothing of it is heard any more, and it hears nothing."""
        _ip("-n", self._fabric.switch, "link", "set", f"p{self.number}", "down")

    def plug(self) -> None:
        """Put the link back."""
        _ip("-n", self._fabric.switch, "link", "set", f"p{self.number}", "up")

    def kill(self) -> None:
        """Let it lose its power."""
        self.unplug()
        self.end()

    def reboot(self) -> None:
        """Let it come back with nothing but its disk, after `kill`."""
        _end_all_in(self.netns)
        self._boot()
        self.plug()

    def end(self) -> None:
        """End all of its processes."""
        if self._init is None:
            return
        with contextlib.suppress(OSError, IndexError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._init.wait(READY_S)
        self._init = None


class Fabric:
    """So many hosts, h0 and further, and a switch on which the head runs."""

    def __init__(self, hosts: int, own: tuple[Path, ...] = ()) -> None:
        """`own`: folders that are each host's own, and go with it."""
        self.own = own
        self.name = f"pyft-{uuid.uuid4().hex[:8]}"
        self.switch = f"{self.name}-switch"
        self.hosts = [Host(self, number) for number in range(hosts)]

    def __enter__(self) -> Fabric:
        """Make all of it. From now on SIGTERM is an exception too, so that all of it is ended."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            _ip("netns", "add", self.switch)
            _ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self.switch, "addr", "add", f"{SWITCH}/24", "dev", "br0")
            for link in ("lo", "br0"):
                _ip("-n", self.switch, "link", "set", link, "up")
            for host in self.hosts:
                host.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End all of it; nothing is left behind."""
        for host in self.hosts:
            host.end()
        for netns in (*(host.netns for host in self.hosts), self.switch):
            _end_all_in(netns)
            subprocess.run(["ip", "netns", "del", netns], capture_output=True, check=False)

    def start_head(
        self, arguments: list[str], environment: dict[str, str], out: Path
    ) -> subprocess.Popen[bytes]:
        """Start a process on the switch."""
        with open(f"{out}.stderr", "ab") as stderr:
            return subprocess.Popen(
                ["nsenter", f"--net=/run/netns/{self.switch}", "--", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )


def _end_all_in(netns: str) -> None:
    """End what still runs in a network namespace, or it would live on without a name."""
    for _ in range(50):
        done = subprocess.run(["ip", "netns", "pids", netns], capture_output=True, text=True)
        pids = [int(pid) for pid in done.stdout.split()]
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        time.sleep(0.02)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise FabricError(f"[ip {' '.join(words)}]: {done.stderr.strip()}")
