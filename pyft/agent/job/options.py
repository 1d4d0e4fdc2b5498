"""What the user has asked of a job; the agent gets it as its command line."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from pyft import config
from pyft.agent.job import redundancy_options
from pyft.agent.job.gpus import MAX_DEVICES as MAX_DEVICES
from pyft.errors import NativeMissingError, UsageError

PROXY_LIBRARIES = ("libpyft_shim.so", "libpyft_nvml.so")
PLACES_LIBRARY = "libpyft_places.so"  # connections between places, in jobs of several hosts
APPENDED_LIBRARY = "libpyft_appended.so"  # files that are opened for each line, in movable jobs
COLLECTIVES = ("libpyft_collectives.so", "libflexccl.so")
SOFT_GPU = "libsoftgpu.so"  # not built where there is no BLAS for it; real GPUs need none
DIRECT_LIBRARIES = (*COLLECTIVES, SOFT_GPU, "libsoftgpu_nvml.so")
SERVER_FILES = ("pyft-server", *COLLECTIVES)
DEFAULT_PROTECT = "snapshot"
# What goes with a job whose processes are restored elsewhere; the rest is of the host and the run.
OF_JOB = (
    *("job", "devices", "spares", "strict", "protect", "on_no_spare", "standby", "divergence"),
    *("dmr", "dmr_where", "dmr_budget", "dmr_memory"),
    "real_gpus",  # of which each host has its own: gpus.on_this_host
)


@dataclass(frozen=True)
class JobOptions:
    """Everything about a job but the environment, which the agent inherits unchanged.

    A field's name, type and default are said here only: the agent's command line follows from them.
    """

    job: str
    log_dir: Path
    native_dir: Path
    devices: int
    direct: bool
    command: tuple[str, ...]
    spares: int = 0  # devices beyond `devices`, which the program does not see
    movable: bool = False  # its processes are dumped, so that they can be restored
    memory_folder: str = ""  # where images lie in memory; nothing: all lie in `log_dir`
    strict: bool = False  # an unsupported call stops the process
    protect: str = DEFAULT_PROTECT  # this, and the next four: words of pyft/cli/run_options.py
    on_no_spare: str = "wait"
    divergence: str = ""  # nothing: strict on soft GPUs
    dmr: str = "off"
    dmr_where: str = ""  # where the second execution runs; nothing: as the mode is
    dmr_budget: float = redundancy_options.BUDGET  # share of the time for second executions
    dmr_memory: float = redundancy_options.MEMORY  # share of the GPU's memory for them
    inject: tuple[str, ...] = ()  # faults on request, see pyft/recovery/inject.py
    metrics_port: int = 0  # of /metrics; 0: off
    standby: str = "spares"  # GPUs for which a server stands by: StandBy of run_options.py
    real_gpus: tuple[str, ...] = ()  # UUIDs, those of the spares last; none: soft GPUs
    head: str = ""  # HOST:PORT of what decides for several hosts
    place: int = 0  # this one's number among them
    life: int = 0  # which owner of the place this one is
    host: str = ""  # its name
    address: str = ""  # at which other hosts reach it
    flush: tuple[str, ...] = ()  # folders into which images that count are written
    parity: int = 0  # how many of them may be lost
    flush_every: float = 0.0  # seconds between two
    replay: str = ""  # one, all; nothing: as replays_all decides

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

    def of_the_job(self) -> dict[str, Any]:
        """Return what is needed to go on with the job on another host, or after all of it was lost."""
        of_job = {name: getattr(self, name) for name in OF_JOB}
        replay = "all" if replays_all(self) else "one"  # images are of the one or of the other
        return of_job | {"command": list(self.command), "replay": replay}

    def to_arguments(self) -> list[str]:
        """Return the agent's command line; `from_arguments` is the inverse."""
        words = []
        for name, kind in _kinds().items():
            value = getattr(self, name)
            if kind is bool:
                words += [_flag(name)] if value else []
            else:
                each = value if kind is tuple else (value,)
                words += [word for one in each for word in (_flag(name), str(one))]
        return [*words, "--", *self.command]

    @classmethod
    def from_arguments(cls, arguments: Sequence[str]) -> tuple[JobOptions, int]:
        """Return the options and the socket to the supervisor."""
        end = arguments.index("--")
        parser = argparse.ArgumentParser(prog="pyft.agent", allow_abbrev=False)
        parser.add_argument("--supervisor-fd", type=int, required=True)
        for name, kind in _kinds().items():
            if kind is bool:
                parser.add_argument(_flag(name), action="store_true")
            elif kind is tuple:
                parser.add_argument(_flag(name), action="append", default=[])
            else:
                parser.add_argument(_flag(name), type=kind, required=True)
        got = vars(parser.parse_args(arguments[:end]))
        supervisor_fd = got.pop("supervisor_fd")
        values = {name: tuple(one) if isinstance(one, list) else one for name, one in got.items()}
        return cls(**values, command=tuple(arguments[end + 1 :])), supervisor_fd

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
        return (*self._proxy_libraries(), *SERVER_FILES, *(() if self.real_gpus else (SOFT_GPU,)))

    def preload_libraries(self) -> list[str]:
        """Return what goes in front of LD_PRELOAD: nothing, where the program has the GPU itself."""
        if self.direct and self.real_gpus:
            return []
        names = DIRECT_LIBRARIES if self.direct else self._proxy_libraries()
        return [str(self.native_dir / name) for name in names]

    def _proxy_libraries(self) -> tuple[str, ...]:
        of_places = (PLACES_LIBRARY,) if self.head else ()
        return (*PROXY_LIBRARIES, *of_places, *((APPENDED_LIBRARY,) if self.movable else ()))


def _kinds() -> dict[str, type]:
    """Return the fields that are options of the agent, in order: all but the command."""
    hints = get_type_hints(JobOptions)
    return {
        field.name: get_origin(hints[field.name]) or hints[field.name]
        for field in fields(JobOptions)
        if field.name != "command"
    }


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


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
    """Raise UsageError where a fault would find that nothing can repair it."""
    if options.protect == "jit" and uses_nccl(options):
        raise UsageError(
            "--protect jit needs ranks that are replaced alone, which NCCL does not allow: use "
            "--protect snapshot, or set PYFT_COLLECTIVES=flexccl"
        )
    redundancy_options.check_given(options)
    if options.dmr != "off":
        redundancy_options.check(options)
    if not options.movable:
        return
    if options.direct or options.protect != "snapshot":
        raise UsageError("--movable needs servers and --protect snapshot")
    if config.get_str("PYFT_REPLAY") == "one" and not options.head:
        raise UsageError("--movable needs ranks that go back together: leave PYFT_REPLAY=one away")


def replays_all(options: JobOptions) -> bool:
    """Say whether a fault of one rank sends all back with which it shares communicators.

    As it must where no rank can be replaced alone, and where records may hold what is wrong.
    """
    if options.replay:
        return options.replay == "all"
    if options.movable and not options.head:  # a line of all ranks is what images belong to
        return True
    if asked := config.get_str("PYFT_REPLAY"):
        return asked == "all"
    nccl = collectives(options, os.environ) == "nccl" if options.head else uses_nccl(options)
    return (nccl or options.dmr != "off") and options.protect == "snapshot"
