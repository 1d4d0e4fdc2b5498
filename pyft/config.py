"""Every PYFT_* variable, in one table: type, default and help.

docs/env-vars.md is made from it (`pyft env --markdown`), and a test compares the two.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from pyft.errors import ConfigError


@dataclass(frozen=True)
class Knob:
    """One variable. `default` decides the type: int, float or str.

    Numbers must be positive, or not negative where 0 means something; texts one of the choices, if
    there are any.
    """

    name: str
    default: int | float | str
    help: str
    internal: bool = False  # set by pyft for its own processes, not by users
    choices: tuple[str, ...] = ()
    zero: bool = False


KNOBS = (
    Knob("PYFT_RING_MB", 64, "size of a command ring, per client process and device"),
    Knob("PYFT_OBJECT_LOG_MB", 1024, "size of the compacted log of living objects (sparse)"),
    Knob("PYFT_ARENA_MB", 256, "size of the payload arena beside a ring"),
    Knob("PYFT_BOUNCE_MB", 4, "buffer for device-to-host copies into pageable memory"),
    Knob("PYFT_PINNED_GB", 64, "limit of pinned host memory per client and device; at most 64"),
    Knob(
        "PYFT_JOURNAL_MB", 0, "what pinned copies read between snapshots (0: 1024, real GPUs 256)"
    ),
    Knob("PYFT_STORE_GB", 512, "limit of captures, journal and records per channel (sparse)"),
    Knob("PYFT_CUT_EVERY", 0, "each K-th cut is captured (0: as its cost allows)"),
    Knob(
        "PYFT_LATE_COPIES",
        "",
        "captures copy behind the cut: always, never (unset: by need)",
        choices=("always", "never"),
    ),
    Knob(
        "PYFT_SHARE_CAPTURES",
        16384,
        "blocks of so many bytes are captured by one replica for all (0: by each)",
        zero=True,
    ),
    Knob(
        "PYFT_DEVICE_DIGEST", "", "0: the host hashes a real GPU's memory (unset: the GPU itself)"
    ),
    Knob(
        "PYFT_REPLAY",
        "",
        "who replays after a fault: one, or all, as stock NCCL needs (unset: all with NCCL)",
        choices=("one", "all"),
    ),
    Knob(
        "PYFT_STANDBY_MODULES",
        "",
        "0: a server that stands by on a real GPU loads no modules before it takes over",
    ),
    Knob(
        "PYFT_PEER_MEMORY",
        "",
        "new servers copy from other ranks' GPUs: 1 always, 0 never (unset: real GPUs that hash)",
        choices=("0", "1"),
    ),
    Knob("PYFT_HEARTBEAT_TIMEOUT_S", 30.0, "a server silent for longer counts as dead"),
    Knob("PYFT_HANG_S", 60.0, "an entry that was started and is unfinished for longer is stuck"),
    Knob("PYFT_KEEP_JOBS", 8, "finished jobs whose traces are kept in the state folder"),
    Knob("PYFT_NATIVE_DIR", "", "folder of the native files, instead of the installed one"),
    Knob(
        "PYFT_CUDA_LIBRARIES", "", "folder of CUDA libraries to use before those of PyTorch's wheel"
    ),
    Knob(
        "PYFT_COLLECTIVES",
        "",
        "on real GPUs: nccl or flexccl (unset: flexccl if ranks share one)",
        choices=("nccl", "flexccl"),
    ),
    Knob("PYFT_FAULT", "", "name:n kills the process at the n-th hit of a named fault point"),
    Knob("PYFT_SPIN_US", "", "microseconds a wait spins before it sleeps (unset: by cores)"),
    Knob("PYFT_STRICT", "", "1: the first unsupported call stops the process"),
    Knob("PYFT_DISABLE", "", "1: the injected library answers every call with `no device`"),
    Knob("PYFT_BUILD_JOBS", 0, "parallel compiler processes of `pip install` (0: one per core)"),
    Knob(
        "PYFT_MESON_OPTIONS",
        "",
        "options of meson for `pip install`, such as -Dtests=true; make has that set",
    ),
    Knob("PYFT_IGNORE_OBSERVED", "", "tests: 1: replays do not wait at OBSERVED marks"),
    Knob("PYFT_TEST_MARK", "", "tests: by this their processes are known"),
    Knob("PYFT_REQUIRE", "", "tests: comma-separated needs whose absence fails instead of skips"),
    Knob("PYFT_AGENT", "", "name of the agent's abstract socket", internal=True),
    Knob("PYFT_JOB", "", "name of the running job", internal=True),
    Knob("PYFT_DEVICES", 0, "number of GPUs the client shows", internal=True),
    Knob("PYFT_GPUS", "", "value of --gpus", internal=True),
    Knob("PYFT_NVML", "", "file of the driver's NVML, behind the program's", internal=True),
    Knob("PYFT_DEVICE", 0, "device ordinal of a server", internal=True),
    Knob("PYFT_ORDINALS", "", "the CUDA ordinal behind each device of the job", internal=True),
    Knob("PYFT_STANDBY", "", "the CUDA ordinal a server gets ready that stands by", internal=True),
    Knob("PYFT_SELF_TEST", "", "1: a server tests its GPU before it uses it", internal=True),
    Knob("PYFT_SERVER_FD", 0, "a server's socket to the agent", internal=True),
    Knob("PYFT_KEEPER_PID", 0, "the process without which a server ends", internal=True),
    Knob(
        "PYFT_KILL_AT",
        "",
        "[rank:R,]cut:S,entry:C[,note:N][;...]: where a server kills itself",
        internal=True,
    ),
    Knob("PYFT_ARBITRATE", 0, "step about whose cut a server's replay decides", internal=True),
    Knob("PYFT_LINE", 0, "entry of the cut at which a rank starts with all others", internal=True),
    Knob("PYFT_PROTECT", "", "capture, jit: value of --protect", internal=True),
    Knob("PYFT_DIVERGENCE", "", "strict, report: value of --divergence", internal=True),
    Knob("PYFT_BACKEND_LIBRARY", "", "GPU library a server loads", internal=True),
)
BY_NAME = {knob.name: knob for knob in KNOBS}


def get(name: str, environment: Mapping[str, str] | None = None) -> int | float | str:
    """Return the value of a knob, converted; raise ConfigError when it cannot be."""
    knob = BY_NAME[name]
    text = (os.environ if environment is None else environment).get(name, "")
    if text == "":
        return knob.default
    if isinstance(knob.default, str):
        if knob.choices and text not in knob.choices:
            raise ConfigError(f"{name} is [{text}], not {' or '.join(knob.choices)}")
        return text
    kind = type(knob.default)
    try:
        value = kind(text)
    except ValueError:
        raise ConfigError(f"{name} is [{text}], which is not a number") from None
    if value < 0 or (value == 0 and knob.default and not knob.zero):
        raise ConfigError(f"{name} is [{text}], which is not positive")
    return value


def get_int(name: str, environment: Mapping[str, str] | None = None) -> int:
    """Return an integer knob."""
    return int(get(name, environment))


def get_str(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return a text knob."""
    return str(get(name, environment))


def check(environment: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError at the first variable that has no value it can have."""
    for knob in KNOBS:
        get(knob.name, environment)


def warnings(environment: Mapping[str, str] | None = None) -> list[str]:
    """One sentence per PYFT_* variable that nothing reads, with the nearest known name."""
    found = []
    for name in sorted(os.environ if environment is None else environment):
        if not name.startswith("PYFT_") or name in BY_NAME:
            continue
        near = difflib.get_close_matches(name, BY_NAME, n=1)
        hint = f"; did you mean [{near[0]}]?" if near else ""
        found.append(f"the variable [{name}] is unknown and has no effect{hint}")
    return found


def markdown() -> str:
    """Return the page docs/env-vars.md."""
    lines = [
        "# Environment variables",
        "",
        "Made from `pyft/config.py` by `pyft env --markdown`.",
        "",
        "| name | default | meaning |",
        "|---|---|---|",
    ]
    for knob in KNOBS:
        note = " (set by pyft itself)" if knob.internal else ""
        default = f"`{knob.default}`" if knob.default != "" else ""
        lines.append(f"| `{knob.name}` | {default} | {knob.help}{note} |")
    return "\n".join(lines) + "\n"
