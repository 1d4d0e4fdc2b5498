"""`pyft doctor`: one small check per need; each says what to do when it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from pyft import _native
from pyft._native import cuda_releases, linux
from pyft._native.driver import DriverError
from pyft._native.driver import gpus as driver_gpus
from pyft.agent.job.options import PROXY_LIBRARIES, SERVER_FILES, SOFT_GPU
from pyft.agent.process import messages
from pyft.hosts import slurm
from pyft.images import criu, memory
from pyft.wire import layout

TORCH_VERSION = "2.11.0"
TRIED_VERSIONS = ("2.6.0", "2.8.0", "2.10.0", "2.14.1")  # tests/wheels/run.py
INSTALL_TORCH = f"pip install torch=={TORCH_VERSION}"
OTHERS = f"{', '.join(TRIED_VERSIONS[:-1])} and {TRIED_VERSIONS[-1]}"
TESTED = f"PyTorch {TORCH_VERSION} is tested; {OTHERS} train as well"  # documents say so, too
NOT_INSTALLED = "not installed"
OF_REAL_GPUS = ("driver's version",)  # a need of theirs only
MIN_MEMORY_GB = 4
DEVICES = 8  # as many as a job can have


@dataclass(frozen=True)
class Finding:
    """What a check found. `status` is ok, warn or fail; `remedy` is empty when ok."""

    need: str
    status: str
    text: str
    remedy: str = ""


def ok(need: str, text: str) -> Finding:
    return Finding(need, "ok", text)


def warn(need: str, text: str, remedy: str) -> Finding:
    return Finding(need, "warn", text, remedy)


def fail(need: str, text: str, remedy: str) -> Finding:
    return Finding(need, "fail", text, remedy)


def check_python() -> Finding:
    # Older ones cannot install pyft: this is for the reader of a bug report.
    return ok("python", f"version {sys.version.split()[0]}, {sys.executable}")


def check_platform() -> Finding:
    machine = f"{sys.platform} {os.uname().machine}, kernel {os.uname().release}"
    if os.uname().machine != "x86_64" or sys.platform != "linux":
        return fail("platform", machine, "use Linux on x86_64")
    return ok("platform", machine)


def check_torch() -> Finding:
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return warn("torch", NOT_INSTALLED, f"{INSTALL_TORCH}; {TESTED}")
    spec = find_spec("torch")
    library = Path(spec.origin or "").parent / "lib" / "libtorch_cuda.so" if spec else None
    if library is None or not library.exists():
        return fail("torch", f"{version} without CUDA", "install the CUDA wheel of torch")
    plain = version.split("+")[0]
    if plain in TRIED_VERSIONS:
        return ok("torch", f"{version} with CUDA; {TESTED}")
    if plain != TORCH_VERSION:
        return warn("torch", f"{version} with CUDA, not tried", f"{INSTALL_TORCH}; {TESTED}")
    return ok("torch", f"{version} with CUDA")


def check_native_files() -> Finding:
    folder = _native.native_dir()
    names = (*PROXY_LIBRARIES, *SERVER_FILES, "libpyft_native.so")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        return fail("native files", f"{missing} not in [{folder}]", "install pyft again")
    return ok("native files", f"in [{folder}]")


def has_soft_gpu() -> bool:
    """Say whether pyft was built with the soft GPU, which jobs on real ones do without."""
    return (_native.native_dir() / SOFT_GPU).is_file()


def check_native_loadable() -> Finding:
    if not has_soft_gpu():
        remedy = "install scipy-openblas32 and pyft again for --gpus soft:N"
        return warn("soft GPU", "pyft was built without it", remedy)
    library = _native.native_dir() / SOFT_GPU
    asked = (
        f"import ctypes; of = ctypes.CDLL({str(library)!r}).softgpu_instruction_set; "
        "of.restype = ctypes.c_char_p; print(of().decode())"
    )
    # In a process of its own: a GPU library leaves threads and reserved addresses behind.
    result = subprocess.run(
        [sys.executable, "-I", "-c", asked],
        capture_output=True,
        text=True,
    )
    if result.returncode:
        cause = (result.stderr.strip().splitlines() or ["no message"])[-1]
        return fail("soft GPU", f"cannot be loaded: {cause}", "install pyft again")
    level = result.stdout.strip()
    return ok("soft GPU", f"libsoftgpu.so loads (with its BLAS and zstd), for {level}")


def check_zstd() -> Finding:
    ours = Path(_native.__file__).parents[2] / "pyft.libs"  # what `make wheel` puts there
    if list(ours.glob("libzstd*")):
        return ok("zstd", f"in [{ours}]")
    if not linux.loads("libzstd.so.1"):
        return fail("zstd", "no libzstd.so.1", "install the package libzstd1")
    return ok("zstd", "libzstd.so.1 loads (kernels in wheels are compressed)")


def check_blas() -> Finding:
    spec = find_spec("scipy_openblas32")
    if spec is None:
        say = fail if has_soft_gpu() else warn  # nothing else computes by itself
        return say("BLAS", "no scipy-openblas32", "pip install scipy-openblas32")
    return ok("BLAS", f"scipy-openblas32 {metadata.version('scipy-openblas32')}")


def check_preload() -> Finding:
    library = str(_native.native_dir() / PROXY_LIBRARIES[0])
    if not Path(library).exists():
        return warn("LD_PRELOAD", "not tried: native files are missing", "see native files")
    code = "print(any('libpyft_shim' in line for line in open('/proc/self/maps')))"
    result = subprocess.run(
        [sys.executable, "-I", "-c", code],
        env=os.environ | {"LD_PRELOAD": library, "PYFT_DISABLE": "1"},
        capture_output=True,
        text=True,
    )
    if result.stdout.strip() != "True":
        cause = (result.stderr.strip().splitlines() or ["the library is not mapped"])[-1]
        return fail(
            "LD_PRELOAD", cause, "use a dynamically linked Python without file capabilities"
        )
    return ok("LD_PRELOAD", "the shim is mapped into a child process")


def check_torch_imports() -> Finding:
    """Resolve every symbol of libtorch_cuda at once, with the shim in front."""
    if find_spec("torch") is None:
        return warn("torch's CUDA imports", "torch is not installed", "see torch")
    paths = [_native.native_dir() / name for name in PROXY_LIBRARIES]
    if not all(path.exists() for path in paths):
        return warn("torch's CUDA imports", "native files are missing", "see native files")
    libraries = ":".join(str(path) for path in paths)
    result = subprocess.run(
        [sys.executable, "-I", "-c", "import torch"],
        env=os.environ | {"LD_PRELOAD": libraries, "LD_BIND_NOW": "1", "PYFT_DISABLE": "1"},
        capture_output=True,
        text=True,
    )
    if result.returncode:
        cause = (result.stderr.strip().splitlines() or ["no message"])[-1]
        return fail("torch's CUDA imports", cause, f"{INSTALL_TORCH}, and report this")
    return ok("torch's CUDA imports", "torch imports with the shim loaded, all symbols bound")


def check_memfd() -> Finding:
    try:
        fd = os.memfd_create("pyft-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.posix_fallocate(fd, 0, 1 << 20)
        os.close(fd)
    except OSError as error:
        return fail("memfd", os.strerror(error.errno or 0), "use a kernel with memfd_create")
    return ok("memfd", "memory objects can be created and preallocated")


def check_proc() -> Finding:
    try:
        os.stat("/proc/self/fd")
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return fail("/proc and pidfd", os.strerror(error.errno or 0), "mount /proc; kernel >= 5.3")
    return ok("/proc and pidfd", "present")


def check_address_window() -> Finding:
    windows = [(layout.DEVICE_WINDOW_BASE + n * layout.DEVICE_WINDOW_BYTES) for n in range(DEVICES)]
    sizes = [layout.DEVICE_WINDOW_BYTES] * DEVICES + [layout.PINNED_STRIDE * DEVICES]
    for base, size in zip([*windows, layout.PINNED_WINDOW_BASE], sizes, strict=True):
        if cause := linux.can_reserve(base, size):
            text = f"{size >> 30} GiB at {base:#x}: {cause}"
            return fail("address window", text, "raise `ulimit -v` to unlimited")
    return ok("address window", f"{DEVICES} devices from {windows[0]:#x} can be reserved")


def check_cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        return warn("cores", str(cores), "two or more let program and server run at once")
    return ok("cores", str(cores))


def check_memory() -> Finding:
    free_gb = memory.available() / (1 << 30)
    text = f"{free_gb:.1f} GB free, limits of control groups counted"
    if free_gb < MIN_MEMORY_GB:
        remedy = (
            "raise the container's limit if it has one, or lower PYFT_ARENA_MB and PYFT_RING_MB"
        )
        return warn("memory", text, remedy)
    return ok("memory", text)


def check_nvidia_driver() -> Finding:
    try:
        found = driver_gpus()
    except DriverError as error:
        remedy = "say --gpus soft:N: a soft GPU needs no driver"
        if Path("/proc/driver/nvidia/version").exists():
            remedy = "see what nvidia-smi says; --gpus soft:N needs no driver"
        return warn("NVIDIA driver", str(error), remedy)
    return warn(
        "NVIDIA driver",
        f"{len(found)} GPUs",
        "pyft has not been tried on a real one yet: tools/gpu/check.sh does; "
        "--gpus soft:N needs no driver",
    )


def check_images() -> Finding:
    program = criu.find()
    why = criu.lacks(program)
    if why or program is None:
        remedy = "only --movable, --flush and --head need it; they need root as well"
        return warn("images of processes", why, remedy)
    if criu.tracks_writes(program):
        text = "CRIU can make them; with PYFT_PRE_DUMPS=1 most of each while all run"
        return ok("images of processes", text)
    text = (
        "CRIU can make them; all stand still for all of it: the kernel lacks CONFIG_MEM_SOFT_DIRTY"
    )
    return ok("images of processes", text)


def check_slurm() -> Finding:
    """Look at what a job of Slurm has to say so that the loss of a host does not end it."""
    if "SLURM_JOB_ID" not in os.environ:
        return ok("Slurm", "this is no job of Slurm")
    missing = slurm.lacks(os.environ)
    if missing:
        text, remedy = ("; ".join(part) for part in zip(*missing, strict=True))
        return warn("Slurm", text, f"{remedy}: docs/operate/slurm.md")
    where = slurm.domain(os.environ) or "not known"
    return ok("Slurm", f"a host that dies does not end the job; failure domain: {where}")


def check_driver_version() -> Finding:
    branch, torch = cuda_releases.driver_branch(), cuda_releases.cuda_of_torch()
    if branch is None or torch is None:
        missing = "driver" if branch is None else "PyTorch with CUDA"
        return ok("driver's version", f"no {missing}: nothing to compare")
    if cause := cuda_releases.mismatch(branch, torch):
        return fail("driver's version", cause, "--gpus soft:N needs no driver")
    return ok("driver's version", f"{branch} runs CUDA {torch[0]}, which PyTorch is built with")


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_platform,
    check_python,
    check_torch,
    check_native_files,
    check_zstd,
    check_blas,
    check_native_loadable,
    check_preload,
    check_torch_imports,
    check_memfd,
    check_proc,
    check_address_window,
    check_cores,
    check_memory,
    check_nvidia_driver,
    check_images,
    check_slurm,
    check_driver_version,
)


def lacks(findings: Sequence[Finding]) -> list[str]:
    """Return what a training on soft GPUs needs and does not find."""
    return [
        one.need
        for one in findings
        if (one.status == "fail" and one.need not in OF_REAL_GPUS)
        # Jobs of other programs, or on real GPUs, go on without.
        or (one.status == "warn" and (one.need == "soft GPU" or one.text == NOT_INSTALLED))
    ]


def verdict(findings: Sequence[Finding]) -> str:
    """Return whether a training on soft GPUs can start, or what it lacks."""
    if missing := lacks(findings):
        return f"not ready for soft GPUs: see {', '.join(missing)} above"
    return "ready for soft GPUs: pyft run --gpus soft:1 -- python train.py"


def audit(target: str, *, as_json: bool) -> None:
    """Say how pyft serves what shared objects need of CUDA."""
    from pyft.cli import imports  # reads ELF, which nothing else here does

    try:
        objects = imports.objects_of(target, messages.say)
    except imports.ImportsError as error:
        messages.say(str(error))
        raise typer.Exit(1) from None
    found = imports.rows(objects, imports.installed_calls())
    if as_json:
        print(json.dumps([asdict(row) for row in found], indent=1))
    else:
        print(imports.report(target, objects, found))


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    imports: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE|PATH",
            help="Say instead how pyft serves what a package, wheel, folder or file needs of CUDA.",
        ),
    ] = None,
) -> None:
    """Check what pyft needs from this machine; exit with 1 if something is missing."""
    if imports is not None:
        audit(imports, as_json=as_json)
        return
    findings = [check() for check in CHECKS]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            remedy = f"  -> {finding.remedy}" if finding.remedy else ""
            print(f"{finding.status:4}  {finding.need}: {finding.text}{remedy}")
        print(f"\n{verdict(findings)}")
    if lacks(findings) or any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)
