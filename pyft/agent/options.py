"""What the launcher tells the agent, as its command line, and the environments of what it starts."""

from __future__ import annotations

import argparse
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyft import config
from pyft._native import nvml
from pyft.agent.gpus import MAX_DEVICES as MAX_DEVICES
from pyft.agent.gpus import library_folders
from pyft.errors import NativeMissingError, UsageError

PROXY_LIBRARIES = ("libpyft_shim.so", "libpyft_nvml.so")
COLLECTIVES = ("libpyft_collectives.so", "libflexccl.so")
SOFT_GPU = "libsoftgpu.so"  # not built where there is no BLAS for it; real GPUs need none
DIRECT_LIBRARIES = (*COLLECTIVES, SOFT_GPU, "libsoftgpu_nvml.so")
SERVER_FILES = ("pyft-server", *COLLECTIVES)
DEFAULT_PROTECT = "capture"
SITE_FOLDER = Path(__file__).resolve().parent.parent / "torch_support" / "site"

# PyTorch's own deadlines are left as they are: their clock stands still during recoveries
# (docs/deadlines.md). torchrun's store has what an attempt before has left in it, the ids of its
# communicators say: each attempt is to have a store of its own.
TORCH_DEFAULTS = {
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
# A secret that flexccl asks of whoever takes part in a job's communicators, beside the unique id,
# which PyTorch hands round in a store that anybody on the network may read.
JOB_TOKEN = "FLEXCCL_JOB_TOKEN"
# Set for the program, meaningless or harmful in a server. The client has already applied
# CUDA_VISIBLE_DEVICES: the server needs to see every device of the job.
CLIENT_VARIABLES = (
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "PYFT_AGENT",
    "PYFT_DEVICES",
    "PYFT_GPUS",
    "PYFT_NVML",
)


@dataclass(frozen=True)
class JobOptions:
    """Everything about a job but the environment, which the agent inherits unchanged."""

    job: str
    log_dir: Path
    native_dir: Path
    devices: int
    direct: bool
    command: tuple[str, ...]
    spares: int = 0  # devices beyond `devices`, which the program does not see
    strict: bool = False  # an unsupported call stops the process
    protect: str = DEFAULT_PROTECT  # capture, jit, none
    on_no_spare: str = "wait"  # wait, fail
    divergence: str = ""  # strict, report; nothing: strict on software GPUs
    inject: tuple[str, ...] = ()  # faults on request, see pyft/recovery/inject.py
    metrics_port: int = 0  # of /metrics; 0: off
    standby: str = "spares"  # spares, all, none: GPUs for which a server stands by
    real_gpus: tuple[str, ...] = ()  # UUIDs, those of the spares last; none: software GPUs

    @property
    def backend(self) -> str:
        """Return whose functions the servers call."""
        return "cuda" if self.real_gpus else "soft"

    @property
    def strict_replay(self) -> bool:
        """Say whether a replay that differs ends the rank."""
        return self.divergence == "strict" if self.divergence else not self.real_gpus

    @property
    def gpus(self) -> str:
        """Return the GPUs the program sees, in the words of --gpus or as UUIDs."""
        return ",".join(self.real_gpus[: self.devices]) or f"soft:{self.devices}"

    def to_arguments(self) -> list[str]:
        """Return the agent's command line; `from_arguments` is the inverse."""
        flags = [f"--{name}" for name in ("direct", "strict") if getattr(self, name)]
        return [
            *("--job", self.job, "--log-dir", str(self.log_dir)),
            *("--native-dir", str(self.native_dir), "--devices", str(self.devices)),
            *("--spares", str(self.spares), "--metrics-port", str(self.metrics_port)),
            *("--protect", self.protect, "--on-no-spare", self.on_no_spare),
            *("--standby", self.standby),
            *("--divergence", self.divergence),
            *(word for text in self.inject for word in ("--inject", text)),
            *(word for uuid in self.real_gpus for word in ("--real-gpu", uuid)),
            *flags,
            "--",
            *self.command,
        ]

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> tuple[JobOptions, int]:
        """Return the options and the socket to the keeper."""
        end = arguments.index("--")
        parser = argparse.ArgumentParser(prog="pyft.agent")
        texts = ("--job", "--log-dir", "--native-dir", "--protect", "--on-no-spare", "--standby")
        for name in (*texts, "--divergence"):
            parser.add_argument(name, required=True)
        for name in ("--devices", "--spares", "--metrics-port", "--keeper-fd"):
            parser.add_argument(name, type=int, required=True)
        parser.add_argument("--inject", action="append", default=[])
        parser.add_argument("--real-gpu", action="append", default=[])
        for name in ("--direct", "--strict"):
            parser.add_argument(name, action="store_true")
        got = parser.parse_args(arguments[:end])
        options = cls(
            job=got.job,
            log_dir=Path(got.log_dir),
            native_dir=Path(got.native_dir),
            devices=got.devices,
            direct=got.direct,
            command=tuple(arguments[end + 1 :]),
            spares=got.spares,
            strict=got.strict,
            protect=got.protect,
            on_no_spare=got.on_no_spare,
            standby=got.standby,
            divergence=got.divergence,
            inject=tuple(got.inject),
            metrics_port=got.metrics_port,
            real_gpus=tuple(got.real_gpu),
        )
        return options, got.keeper_fd

    def check_native_files(self) -> None:
        """Raise NativeMissingError naming the first file the job would miss."""
        if re.search(r"[\s:]", str(self.native_dir)):
            raise NativeMissingError(
                f"pyft lies in [{self.native_dir}]: LD_PRELOAD allows no ':' or space in it"
            )
        for name in self.native_files():
            if not (self.native_dir / name).is_file():
                remedy = "install scipy-openblas32 and pyft again" if name == SOFT_GPU else ""
                raise NativeMissingError(
                    f"the native file [{self.native_dir / name}] is missing: "
                    + (remedy or "install pyft again")
                )

    def native_files(self) -> tuple[str, ...]:
        """Return the files of pyft that the job uses."""
        if self.direct:
            return () if self.real_gpus else DIRECT_LIBRARIES
        return (*PROXY_LIBRARIES, *SERVER_FILES, *(() if self.real_gpus else (SOFT_GPU,)))

    def preload_libraries(self) -> list[str]:
        """Return what goes in front of LD_PRELOAD: nothing, where the program has the GPU itself."""
        if self.direct and self.real_gpus:
            return []
        names = DIRECT_LIBRARIES if self.direct else PROXY_LIBRARIES
        return [str(self.native_dir / name) for name in names]


def prepend(environment: dict[str, str], name: str, parts: Sequence[str]) -> None:
    """Put path-like parts before what the user has in the variable, if anything."""
    old = environment.get(name)
    if not parts:
        return
    environment[name] = ":".join([*parts, *([old] if old else [])])


def program_environment(
    options: JobOptions, base: Mapping[str, str], agent_name: str
) -> dict[str, str]:
    """Return the environment of the user's command."""
    environment = dict(base)
    prepend(environment, "LD_PRELOAD", options.preload_libraries())
    prepend(environment, "PYTHONPATH", [str(SITE_FOLDER)])
    environment["PYFT_JOB"] = options.job
    environment["PYFT_GPUS"] = options.gpus
    if options.strict:
        environment["PYFT_STRICT"] = "1"
    if options.direct and options.real_gpus:
        environment["CUDA_VISIBLE_DEVICES"] = options.gpus
    elif options.direct:
        environment["SOFTGPU_DEVICES"] = str(options.devices)
        environment[JOB_TOKEN] = job_token(base)
    else:
        environment["PYFT_AGENT"] = agent_name
        environment["PYFT_DEVICES"] = str(options.devices)
        if options.real_gpus:
            # It names GPUs of the machine, and has been heeded if it was to be: the program sees
            # those of the job, which are numbered anew.
            environment.pop("CUDA_VISIBLE_DEVICES", None)
            environment["PYFT_NVML"] = nvml.library_path()
    for name, value in TORCH_DEFAULTS.items():
        environment.setdefault(name, value)
    if options.preload_libraries():
        environment.setdefault("TRITON_LIBCUDA_PATH", str(options.log_dir / "triton"))
    return environment


def job_token(environment: Mapping[str, str]) -> str:
    """Return the secret of a job: the user's, for ranks in several jobs, or one that is its own."""
    return environment.get(JOB_TOKEN) or secrets.token_hex(16)


def collectives(options: JobOptions, environment: Mapping[str, str]) -> str:
    """Return whose collectives the servers use: flexccl's, or NCCL's, which refuses a shared GPU."""
    if not options.real_gpus:
        return "flexccl"
    shared = len(set(options.real_gpus)) < len(options.real_gpus)
    return environment.get("PYFT_COLLECTIVES") or ("flexccl" if shared else "nccl")


def uses_nccl(options: JobOptions) -> bool:
    """Say whether NCCL connects the ranks, which does not let a new one in."""
    return options.devices > 1 and collectives(options, os.environ) == "nccl"


def check_protection(options: JobOptions) -> None:
    """Raise UsageError where a fault would find that nobody can repair it."""
    if options.protect == "jit" and uses_nccl(options):
        raise UsageError(
            "--protect jit needs ranks that are replaced alone, which NCCL does not allow: use "
            "--protect capture, or set PYFT_COLLECTIVES=flexccl"
        )


def replays_all(options: JobOptions) -> bool:
    """Say whether a fault of one rank sends all back with which it shares communicators.

    As it must where nobody can be replaced alone.
    """
    if asked := config.get_str("PYFT_REPLAY"):
        return asked == "all"
    return uses_nccl(options) and options.protect == "capture"


def server_environment(
    options: JobOptions, client: Mapping[str, str], device: int, gpu: int, gpus: int
) -> dict[str, str]:
    """Return the environment of a server: the client's, which may set CUDA or NCCL variables.

    `gpu` stands behind device number `device`, `gpus` of them exist.
    """
    environment = {k: v for k, v in client.items() if k not in CLIENT_VARIABLES}
    environment["PYFT_DEVICE"] = str(device)
    environment["PYFT_JOB"] = options.job
    order = visible_devices(device, gpu, gpus)
    if options.real_gpus:
        environment |= real_environment(options.real_gpus, order)
        environment["PYFT_COLLECTIVES"] = collectives(options, environment)
        if environment["PYFT_COLLECTIVES"] == "flexccl":
            # A stream that stands still must not hold up another in the same queue of the device.
            environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        # NCCL would ask the driver for a handle of the buffers in a graph, which ours have not.
        environment.setdefault("NCCL_GRAPH_REGISTER", "0")
        folder = environment.get("PYFT_CUDA_LIBRARIES")
        prepend(environment, "LD_LIBRARY_PATH", [*([folder] if folder else []), *library_folders()])
    else:
        environment["PYFT_BACKEND_LIBRARY"] = str(options.native_dir / "libsoftgpu.so")
        environment["SOFTGPU_DEVICES"] = str(gpus)
        # Or the BLAS starts a thread per core when it is loaded, which spin for 30 ms: 32 servers
        # that start at once keep two cores busy for half a second. SOFTGPU_BLAS_THREADS adds some.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        if gpu != device:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(g) for g in order)
    if options.protect != "none":
        # Longer than any recovery, and than an operator takes to bring a GPU.
        environment.setdefault("FLEXCCL_REPAIR_MS", "86400000")
        if replays_all(options):
            environment["PYFT_REPLAY"] = "all"
            environment.setdefault("FLEXCCL_ABORT", "partial")  # nobody needs what is kept
        environment["PYFT_PROTECT"] = options.protect
        environment["PYFT_DIVERGENCE"] = "strict" if options.strict_replay else "report"
    return environment


def real_environment(real_gpus: Sequence[str], order: Sequence[int]) -> dict[str, str]:
    """Return which GPUs a server sees: all of the job, once each, always in the same order.

    So a server can be started, and its driver initialised, before it is known for which device.
    """
    names = list(dict.fromkeys(real_gpus))
    return {
        "PYFT_BACKEND_LIBRARY": "cuda",
        "CUDA_VISIBLE_DEVICES": ",".join(names),
        "PYFT_ORDINALS": ",".join(str(names.index(real_gpus[gpu])) for gpu in order),
    }


def visible_devices(device: int, gpu: int, gpus: int) -> list[int]:
    """Return which GPU stands behind each device number of a server."""
    order = list(range(gpus))
    order[device], order[gpu] = order[gpu], order[device]
    return order


def link_for_triton(options: JobOptions) -> None:
    """Give Triton a folder with a libcuda.so.1, which it looks for before it compiles anything."""
    folder = options.log_dir / "triton"
    folder.mkdir(exist_ok=True)
    link = folder / "libcuda.so.1"
    libraries = options.preload_libraries()
    if libraries and not link.is_symlink():
        os.symlink(libraries[0], link)
