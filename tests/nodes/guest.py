"""Runs a command in a virtual machine whose kernel tracks which pages are written (soft-dirty).

    tests/nodes/guest.py [--memory-mb 5000] [--timeout-s 3600] [--back FOLDER] COMMAND...

The machine sees this one's files, and keeps what it writes to them in its memory. Its kernel is
Debian's for clouds, fetched once (25 MB). Output and exit code come back, and with --back what the
command leaves in /guest. It needs root, and the packages of Debian in PACKAGES. Where /dev/kvm starts
no usual kernel the machine is emulated, and slow. GUEST_KERNEL: a folder with another
kernel, as its package has it; GUEST_LOG: gets what the kernel says.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGES = "qemu-system-x86 qemu-system-common busybox-static"
KERNEL = "linux-image-cloud-amd64"
LACKS, TIMED_OUT, BROKEN = 77, 124, 70  # exit codes
FETCH_S, SHARE_S = 300.0, 10.0
_DAEMONS = ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")
_MODULES = (
    *("virtio_pci", "virtiofs", "overlay", "veth", "bridge"),
    *("nf_tables", "nft_ct", "nft_compat", "nft_chain_nat", "nf_conntrack_netlink"),
    *("nft_reject_inet", "inet_diag", "tcp_diag", "udp_diag", "raw_diag", "unix_diag"),
    *("netlink_diag", "af_packet_diag"),
)
_INIT = """#!/bin/sh
export PATH=/bin
for name in proc sys dev lower upper root; do busybox mkdir -p /$name; done
busybox mount -t proc none /proc
busybox mount -t sysfs none /sys
busybox mount -t devtmpfs none /dev
while read module; do busybox insmod $module; done </modules.order
busybox mount -t virtiofs -o ro files /lower || busybox poweroff -f
busybox mount -t tmpfs -o size=90% none /upper
busybox mkdir /upper/data /upper/work
busybox mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work none /root
for name in proc sys dev tmp run guest; do busybox mkdir -p /root/$name; done
busybox mount -t proc none /root/proc
busybox mount -t sysfs none /root/sys
busybox mount -t devtmpfs none /root/dev
for name in run dev/shm; do
    busybox mkdir -p /root/$name
    busybox mount -t tmpfs -o size=90% none /root/$name
done
busybox mkdir -p /root/dev/pts
busybox mount -t devpts none /root/dev/pts
busybox ln -s /proc/self/fd /root/dev/fd
busybox mount -t virtiofs back /root/guest
busybox ip link set lo up
busybox cp /bin/busybox /last /root/run/
busybox umount /proc /sys /dev
exec busybox switch_root /root /run/busybox sh /run/last
"""
# The first process has to reap what has lost its parent.
_LAST = """exec </dev/null >/dev/ttyS1 2>&1
/run/busybox stty -opost </dev/ttyS1
(
    cd {folder} || exit
    /usr/bin/env -i {environment} /run/busybox setsid {command}
    echo $? >/guest/exit-code
    /run/busybox sync
    /run/busybox poweroff -f
) &
while :; do wait; /run/busybox sleep 1; done
"""


class LacksError(Exception):
    """What this machine lacks."""


def run(command: Sequence[str], memory_mb: int, timeout_s: float, back: Path | None = None) -> int:
    """Run a command; return its exit code. `back`: gets what it leaves in /guest."""
    daemon, (kernel, modules) = _daemon(), kernel_files()
    with (
        tempfile.TemporaryDirectory(prefix="guest-of-pyft-") as name,
        contextlib.ExitStack() as ends,
    ):
        folder = Path(name)
        given = folder / "back"
        given.mkdir()
        (folder / "start").write_bytes(_archive(_start_files(modules, command)))
        for tag, source in (("files", Path("/")), ("back", given)):
            ends.enter_context(_shared(daemon, folder, tag, source))
        arguments = _machine(folder, kernel, memory_mb)
        try:
            subprocess.run(arguments, stdin=subprocess.DEVNULL, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        code = given / "exit-code"
        if not code.exists() or not code.read_text().strip():
            sys.stderr.write((folder / "kernel.log").read_text(errors="replace")[-4000:])
            return BROKEN
        if asked_log := os.environ.get("GUEST_LOG"):
            shutil.copy(folder / "kernel.log", asked_log)
        if back:
            shutil.copytree(given, back, dirs_exist_ok=True)
        return int(code.read_text())


def kernel_files() -> tuple[Path, Path]:
    """Return the kernel and the folder of its modules; fetch them if they are not there."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    folder = Path(os.environ.get("GUEST_KERNEL") or data / "pyft" / "kernel")
    if not list(folder.glob("boot/vmlinuz-*")):
        _fetch(folder)
    kernel = max(folder.glob("boot/vmlinuz-*"))
    return kernel, folder / "lib" / "modules" / kernel.name.removeprefix("vmlinuz-")


def _fetch(folder: Path) -> None:
    shown = subprocess.run(
        ["apt-cache", "depends", KERNEL], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    name = re.search(r"Depends: (linux-image-\S+)", shown)
    if not name:
        raise LacksError(f"apt knows no package {KERNEL}")
    with tempfile.TemporaryDirectory() as there:
        options = {"cwd": there, "timeout": FETCH_S, "check": True}
        try:
            subprocess.run(["apt-get", "-qq", "download", name[1]], **options)
            package = next(Path(there).glob("*.deb"))
            subprocess.run(["dpkg-deb", "-x", package.name, "unpacked"], **options)
        except (subprocess.SubprocessError, OSError, StopIteration) as error:
            raise LacksError(f"{name[1]} cannot be fetched: {error}") from None
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(f"{there}/unpacked", folder)


def _daemon() -> str:
    """Return what shares files with a machine; raise LacksError if that or another program is missing."""
    found = next((path for path in _DAEMONS if os.access(path, os.X_OK)), "")
    missing = [name for name in ("qemu-system-x86_64", "busybox") if not shutil.which(name)]
    if missing or not found:
        raise LacksError(f"{missing or 'virtiofsd'} missing: apt-get install {PACKAGES}")
    if os.geteuid():
        raise LacksError("it needs root")
    return found


@contextlib.contextmanager
def _shared(daemon: str, folder: Path, tag: str, source: Path) -> Iterator[None]:
    """Share a folder with a machine, by a socket in `folder`."""
    socket = folder / f"{tag}.socket"
    cache = "always" if tag == "files" else "none"
    options = f"source={source},cache={cache},sandbox=chroot"
    arguments = [daemon, f"--socket-path={socket}", "-o", options, "-f"]
    with (folder / f"{tag}.log").open("wb") as log:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + SHARE_S
        while not socket.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise LacksError(f"[{daemon}] fails: {(folder / f'{tag}.log').read_text()[-400:]}")
            time.sleep(0.01)
        yield
    finally:
        process.kill()
        process.wait()


def _machine(folder: Path, kernel: Path, memory_mb: int) -> list[str]:
    # A host that is such a machine itself without the processor's help (PVM) starts no usual kernel.
    fast = os.access("/dev/kvm", os.W_OK) and not Path("/sys/module/kvm_pvm").exists()
    processor = ["-accel", "kvm", "-cpu", "host"] if fast else ["-accel", "tcg,thread=multi"]
    processor += [] if fast else ["-cpu", "max"]
    said = "console=ttyS0 panic=-1 rdinit=/init no_timer_check random.trust_cpu=on mitigations=off"
    shares = []
    for tag in ("files", "back"):
        shares += ["-chardev", f"socket,id={tag},path={folder}/{tag}.socket"]
        shares += ["-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"]
    return [
        *("qemu-system-x86_64", *processor, "-smp", "2", "-m", f"{memory_mb}M"),
        *("-object", f"memory-backend-memfd,id=all,size={memory_mb}M,share=on"),
        *("-machine", "q35,memory-backend=all", "-nodefaults", "-display", "none", "-no-reboot"),
        *("-serial", f"file:{folder}/kernel.log", "-serial", "stdio"),
        *("-kernel", str(kernel), "-initrd", str(folder / "start"), "-append", said),
        *shares,
    ]


# ---- what the machine starts with -----------------------------------------------------------------


def _start_files(modules: Path, command: Sequence[str]) -> dict[str, bytes]:
    found = {path.stem.replace("-", "_"): path for path in modules.rglob("*.ko")}
    order: list[str] = []
    for name in _MODULES:
        _add(name, found, order)
    names = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "PYTHONPATH", "TESTS_SLOWER")
    own = {name: os.environ[name] for name in names if name in os.environ}
    own |= {name: value for name, value in os.environ.items() if name.startswith("PYFT_")}
    last = _LAST.format(
        folder=shlex.quote(os.getcwd()),
        environment=shlex.join(f"{name}={value}" for name, value in own.items()),
        command=shlex.join(command),
    )
    busybox = Path(shutil.which("busybox") or "").read_bytes()
    files = {"init": _INIT.encode(), "bin/busybox": busybox, "bin/sh": busybox}
    files |= {"last": last.encode(), "modules.order": "".join(f"/{n}\n" for n in order).encode()}
    return files | {name: found[name].read_bytes() for name in order}


def _add(name: str, found: dict[str, Path], order: list[str]) -> None:
    """Add a module behind those that it needs, where the kernel has it not built in."""
    if name in order or name not in found:
        return
    needs = re.search(rb"\0depends=([^\0]*)\0", found[name].read_bytes())
    for other in needs[1].decode().split(",") if needs and needs[1] else ():
        _add(other.replace("-", "_"), found, order)
    order.append(name)


def _archive(files: dict[str, bytes]) -> bytes:
    """Return files, which the machine may execute, in the form in which a kernel starts from them."""
    parts, folders = [], {name.rpartition("/")[0] for name in files} - {""}
    rows = [(name, stat.S_IFDIR, b"") for name in sorted(folders)]
    rows += [(name, stat.S_IFREG, data) for name, data in files.items()]
    for number, (name, kind, data) in enumerate([*rows, ("TRAILER!!!", 0, b"")], 1):
        fields = (number, kind | 0o755, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]
    return b"".join(parts)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run a command in a machine with soft-dirty.")
    parser.add_argument("--memory-mb", type=int, default=5000)
    parser.add_argument("--timeout-s", type=float, default=3600.0)
    parser.add_argument("--back", type=Path, help="gets what the command leaves in /guest")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves nothing behind
    try:
        return run(asked.command, asked.memory_mb, asked.timeout_s, asked.back)
    except LacksError as error:
        print(f"guest: {error}", file=sys.stderr)
        return LACKS


if __name__ == "__main__":
    sys.exit(main())
