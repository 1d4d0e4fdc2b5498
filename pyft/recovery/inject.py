"""Faults on request: `KIND,rank=R[,step=S][,call=C]`, for `pyft run --inject` and `pyft inject`."""

from __future__ import annotations

from dataclasses import dataclass

from pyft.errors import UsageError

# What the soft GPU or the server is told (softgpu/README.md, "Faults on request").
WORDS = {
    "server-kill": "kill",
    "sticky": "error code=700",
    "gpu-lost": "lost",
    "ecc": "ecc",
    "hang": "hang",
    "comm-drop": "comm-drop",
    "slow": "slow factor=10",
    "bitflip": "flip result=changed",
}
KINDS = tuple(WORDS)
# Faults that the job's environment asks for: of the first server of a rank only.
ONCE = ("PYFT_FAULT", "FLEXCCL_FAULT", "SOFTGPU_FAULT", "SOFTGPU_CONTROL")


@dataclass(frozen=True)
class Injection:
    """One fault, which happens once in a job."""

    kind: str
    rank: int = 0
    step: int = -1  # after this cut; -1: not asked for
    call: int = 0  # before this entry after the cut, or at this launch, from 1; 0: not asked for
    server: int = 1  # of the rank: 1 is the first, 2 the first replacement

    @property
    def has_place(self) -> bool:
        """Say whether a place in the program is asked for; otherwise it happens at once."""
        return self.step >= 0 or self.call > 0

    def place(self) -> str:
        """Return where, as the server reads it."""
        return f"cut:{max(self.step, 0)},entry:{max(self.call, 1)}"

    @property
    def by_server(self) -> bool:
        """Say whether the server finds the place itself, exactly; the agent looks for others."""
        return self.kind == "server-kill" and self.has_place

    def words(self, device: int, number: int) -> str:
        """Return what, as the soft GPU reads it; its device numbers are the program's.

        `number`: of the byte in which it notes that it has happened.
        """
        words = WORDS[self.kind]
        if self.kind in ("server-kill", "comm-drop"):
            return words
        place = f" in={self.call}" if self.call else ""
        return f"{words} device={device}{place} note={number}"

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        parts = [self.kind, f"rank={self.rank}"]
        parts += [f"step={self.step}"] if self.step >= 0 else []
        parts += [f"call={self.call}"] if self.call else []
        parts += [f"server={self.server}"] if self.server != 1 else []
        return ",".join(parts)


def parse(text: str, rank: int | None = None) -> Injection:
    """Read one fault; `rank` is for texts that do not name it. Raise UsageError at what is wrong."""
    kind, *settings = text.split(",")
    if kind not in WORDS:
        raise UsageError(f"fault kind [{kind}] does not exist: there are {', '.join(KINDS)}")
    values = {} if rank is None else {"rank": rank}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in ("rank", "step", "call", "server"):
            raise UsageError(f"[{setting}] in fault [{text}] is not rank=, step=, call= or server=")
        if not value.isdecimal() or len(value) > 9:
            raise UsageError(f"[{setting}] in fault [{text}] is no number")
        values[name] = int(value)
    if "rank" not in values:
        raise UsageError(f"fault [{text}] does not say which rank: add rank=R")
    if values.get("call") == 0 or values.get("server") == 0:
        raise UsageError(f"fault [{text}]: call= and server= count from 1")
    return Injection(kind, **values)


def lost_gpus(device: int, gpu: int, lost: dict[int, str]) -> dict[str, str]:
    """Return the environment in which a lost soft GPU stays lost, for whoever uses it again."""
    return {"SOFTGPU_FAULT": f"lost device={device}"} if gpu in lost else {}
