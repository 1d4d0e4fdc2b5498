"""What Slurm says of a host in the environment of its tasks, and what a job there lacks for pyft.

Only variables that Slurm itself sets are believed; a value that cannot be is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyft.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MOST_PLACES = 4096


def is_step(environment: Mapping[str, str]) -> bool:
    """Say whether this process was started by srun."""
    return "SLURM_JOB_ID" in environment and environment.get("SLURM_STEP_ID", "").isdecimal()


def place(environment: Mapping[str, str]) -> int:
    """Return which place a task of srun is: its number, where each host has one; else 0."""
    if not is_step(environment):
        return 0
    tasks, hosts = (
        environment.get(name, "") for name in ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES")
    )
    if tasks != hosts:
        raise UsageError(
            f"a place is a host, but Slurm runs [{tasks}] tasks on [{hosts}] hosts: "
            "say srun --ntasks-per-node=1"
        )
    text = environment.get("SLURM_PROCID", "")
    if not text.isdecimal() or int(text) >= _MOST_PLACES:
        raise UsageError(f"SLURM_PROCID is [{text}], which is no place")
    return int(text)


def host(environment: Mapping[str, str]) -> str:
    """Return what Slurm calls this host; nothing where this is none of its tasks."""
    name = environment.get("SLURMD_NODENAME", "") if is_step(environment) else ""
    return name if _NAME.fullmatch(name) else ""


def domain(environment: Mapping[str, str]) -> str:
    """Return the failure domain of this host: the switch above it; nothing if that is not known."""
    if not is_step(environment):
        return ""
    address = environment.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    pattern = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    if len(address) != len(pattern) or "switch" not in pattern:
        return ""
    text = ".".join(address[: len(pattern) - pattern[::-1].index("switch")])
    return text if _NAME.fullmatch(text) else ""


def lacks(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what is missing in a job of Slurm that is to survive its hosts, each with its remedy."""
    missing = []
    if environment.get("SLURM_NO_KILL", "") != "set":
        what = "srun is not told --no-kill: a host that dies ends the step"
        missing.append((what, "export SLURM_NO_KILL=set, and #SBATCH --no-kill"))
    if environment.get("SLURM_KILL_BAD_EXIT", "") != "0":
        what = "srun may end all tasks of a step when one fails"
        missing.append((what, "export SLURM_KILL_BAD_EXIT=0"))
    if is_step(environment):
        try:
            place(environment)
        except UsageError as error:
            missing.append((str(error), "srun --ntasks-per-node=1"))
    if len(environment.get("PYFT_TOKEN", "")) < 16:
        what = "PYFT_TOKEN is not set: hosts do not know each other"
        missing.append((what, "export PYFT_TOKEN=$(openssl rand -hex 32) in the batch script"))
    return missing
