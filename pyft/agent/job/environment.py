"""The environments of what a job starts: the user's command, and servers."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyft._native import nvml
from pyft._native.cuda_releases import release_of_torch
from pyft.agent.job import redundancy_options
from pyft.agent.job.gpus import library_folders
from pyft.agent.job.options import JobOptions, collectives, replays_all
from pyft.images import reopened

SITE_FOLDER = Path(__file__).resolve().parents[2] / "torch_support" / "site"

# PyTorch's own deadlines are left as they are: their clock stands still during recoveries
# (docs/deadlines.md). torchrun's store has what an attempt before has left in it, the ids of its
# communicators say: each attempt is to have a store of its own.
TORCH_DEFAULTS = {
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}
# On soft GPUs. PyTorch's wheels have MAGMA's kernels for sm_80 and newer only, and use them where
# they are quicker than cuSOLVER.
SOFT_TORCH_DEFAULTS = {"TORCH_LINALG_PREFER_CUSOLVER": "1"}
# A secret that flexccl asks of all that take part in a job's communicators, beside the unique id,
# which PyTorch hands round in a store that any machine of the network may read.
JOB_TOKEN = "FLEXCCL_JOB_TOKEN"
# Set for the program, meaningless or harmful in a server. The client has already applied
# CUDA_VISIBLE_DEVICES: the server needs to see every device of the job.
CLIENT_VARIABLES = (
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "PYFT_AGENT",
    "PYFT_APPENDED",
    "PYFT_DEVICES",
    "PYFT_GPUS",
    "PYFT_JOB_FOLDER",
    "PYFT_NVML",
)
# Faults that the job's environment asks for: of the first server of a rank only.
ONCE = ("PYFT_FAULT", "FLEXCCL_FAULT", "SOFTGPU_FAULT", "SOFTGPU_CONTROL")


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
    environment.pop("PYFT_TOKEN", None)  # what has it can be a host of the job
    prepend(environment, "LD_PRELOAD", options.preload_libraries())
    prepend(environment, "PYTHONPATH", [str(SITE_FOLDER)])
    environment["PYFT_JOB"] = options.job
    environment["PYFT_JOB_FOLDER"] = str(options.log_dir)
    environment["PYFT_GPUS"] = options.gpus
    if options.movable:
        environment["PYFT_APPENDED"] = str(options.log_dir / reopened.NAME)
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
    defaults = TORCH_DEFAULTS | ({} if options.real_gpus else SOFT_TORCH_DEFAULTS)
    for name, value in defaults.items():
        environment.setdefault(name, value)
    if options.preload_libraries():
        environment.setdefault("TRITON_LIBCUDA_PATH", str(options.log_dir / "triton"))
    return environment


def job_token(environment: Mapping[str, str]) -> str:
    """Return the secret of a job: the user's, for ranks in several jobs, or one that is its own."""
    return environment.get(JOB_TOKEN) or secrets.token_hex(16)


def server_environment(
    options: JobOptions, client: Mapping[str, str], device: int, gpu: int, gpus: int
) -> dict[str, str]:
    """Return the environment of a server: the client's, which may set CUDA or NCCL variables.

    `gpu` stands behind device number `device`, `gpus` of them exist.
    """
    environment = {k: v for k, v in client.items() if k not in CLIENT_VARIABLES}
    environment["PYFT_DEVICE"] = str(device)
    environment["PYFT_JOB"] = options.job
    if options.address:
        environment["FLEXCCL_ADDRESS"] = options.address
    order = visible_devices(device, gpu, gpus)
    if options.real_gpus:
        environment |= real_environment(options.real_gpus, order)
        environment["PYFT_COLLECTIVES"] = collectives(options, environment)
        if environment["PYFT_COLLECTIVES"] == "flexccl":
            # A stream that stands still must not hold up another in the same queue of the device.
            environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        # NCCL would ask the driver for a handle of the buffers in a graph, which ours have not.
        environment.setdefault("NCCL_GRAPH_REGISTER", "0")
        release = environment.setdefault("PYFT_CUDA_RELEASE", str(release_of_torch()))
        folder = environment.get("PYFT_CUDA_LIBRARIES")
        folders = [*([folder] if folder else []), *library_folders(int(release))]
        prepend(environment, "LD_LIBRARY_PATH", folders)
    else:
        environment["PYFT_BACKEND_LIBRARY"] = str(options.native_dir / "libsoftgpu.so")
        environment["SOFTGPU_DEVICES"] = str(gpus)
        # Or the BLAS starts a thread per core when it is loaded, which spin for 30 ms: 32 servers
        # that start at once keep two cores busy for half a second. SOFTGPU_BLAS_THREADS adds some.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        if gpu != device:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(g) for g in order)
    if options.standby == "all" or (options.standby == "spares" and options.spares):
        # What servers that stand by have not shows in where modules come to lie.
        environment.setdefault("PYFT_DEVICE_STAGING", "0")
    if options.protect != "none":
        # The longest there is, 24 days: an operator may take his time to bring a GPU.
        environment.setdefault("FLEXCCL_REPAIR_MS", "2147483647")
        if replays_all(options):
            environment["PYFT_REPLAY"] = "all"
            environment.setdefault("FLEXCCL_ABORT", "partial")  # nothing needs what is kept
        environment["PYFT_PROTECT"] = options.protect
        environment |= redundancy_options.environment(options)
        environment["PYFT_DIVERGENCE"] = "strict" if options.strict_replay else "report"
    return environment


def of_replacement(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server that takes over, or stands by for that, from that of any.

    It launches each kernel for the first time in the middle of a step. Loading one then may wait for
    the device, on which a kernel of NCCL spins until another rank comes: so all are loaded before.
    """
    changed = {name: value for name, value in environment.items() if name not in ONCE}
    with_nccl = changed.get("PYFT_COLLECTIVES") == "nccl" and changed.get("PYFT_REPLAY") == "all"
    if with_nccl and changed.get("PYFT_BACKEND_LIBRARY") == "cuda":
        changed.setdefault("CUDA_MODULE_LOADING", "EAGER")
    return changed


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
    """Give Triton a folder with a libcuda.so.1, which it looks for before it compiles anything.

    Up to 3.4 it then links with libcuda.so, which it takes for a link to that one.
    """
    folder, libraries = options.log_dir / "triton", options.preload_libraries()
    folder.mkdir(exist_ok=True)
    for name in ("libcuda.so.1", "libcuda.so"):
        link = folder / name
        if libraries and not (link.is_symlink() and os.readlink(link) == libraries[0]):
            link.unlink(missing_ok=True)  # of a job that had the folder before
            os.symlink(libraries[0], link)


def lost_gpus(device: int, gpu: int, lost: dict[int, str]) -> dict[str, str]:
    """Return the environment in which a lost soft GPU stays lost, for what uses it again."""
    return {"SOFTGPU_FAULT": f"lost,device={device}"} if gpu in lost else {}
