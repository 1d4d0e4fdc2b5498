"""One rank: a small network with dropout and Adam, trained data-parallel.

    python -m pyft_lab.workloads.train CELL_FOLDER ATTEMPT RANK LAUNCHER     # and WORLD_SIZE

On the CPU over gloo, on a GPU over NCCL; plain PyTorch, which knows of no mechanism. Each step ends
with one line of `ranks/RANK.jsonl`, written by one write(2) after the device has done the step:
attempt, step, time, loss as a hexadecimal float, and the numbers of its samples. Times are those of
the host's clock: a job that goes on from a disk has another monotonic one.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGAN = time.time()  # before torch is imported: that is a part of each restart

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from pyft_lab.api import Mechanism  # noqa: E402
from pyft_lab.mechanisms import find  # noqa: E402
from pyft_lab.workloads.models import SAMPLES, WORKLOADS  # noqa: E402
from pyft_lab.workloads.points import fault_points  # noqa: E402

BATCH = 16
LEAVE_S = 30.0  # for other ranks to come to their end; the launcher ends them if one has failed
PR_SET_PDEATHSIG = 1  # sys/prctl.h


class Sampler:
    """Walks a seeded permutation in windows; its cursor is part of the state."""

    def __init__(self, seed: int) -> None:
        self.order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(seed)).tolist()
        self.cursor = 0

    def window(self, rank: int, world: int) -> list[int]:
        first = self.cursor
        self.cursor += BATCH
        return [self.order[(first + i) % SAMPLES] for i in range(rank, BATCH, world)]


class State:
    """All that the rest of a run depends on."""

    def __init__(self, workload: str, seed: int, device: torch.device) -> None:
        torch.manual_seed(seed)
        self.device = device
        self.model = WORKLOADS[workload].model().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        for parameter in self.model.parameters():  # so that Adam's state is there from the start
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        self.sampler = Sampler(seed)
        self.step = 0

    def pack(self) -> dict[str, Any]:
        packed = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "cursor": self.sampler.cursor,
            "generator": torch.get_rng_state(),
            "step": self.step,
        }
        if self.device.type == "cuda":
            packed["device_generator"] = torch.cuda.get_rng_state(self.device)
        return packed

    def unpack(self, packed: dict[str, Any]) -> None:
        self.model.load_state_dict(packed["model"])
        self.optimizer.load_state_dict(packed["optimizer"])
        self.sampler.cursor, self.step = packed["cursor"], packed["step"]
        torch.set_rng_state(packed["generator"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(packed["device_generator"], self.device)

    def digest(self) -> str:
        """Return a hash of parameters and optimizer state."""
        found = hashlib.sha256()
        for state in (self.model.state_dict(), *self.optimizer.state_dict()["state"].values()):
            for name in sorted(state):
                found.update(state[name].detach().cpu().numpy().tobytes())
        return found.hexdigest()


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line, which stays when a job goes back: what was done again is to be seen.

    So the file is not kept open, and becomes one to append to only when it is: pyft cuts back others.
    """
    log = os.open(path, os.O_WRONLY | os.O_CREAT)
    fcntl.fcntl(log, fcntl.F_SETFL, os.O_APPEND)
    os.write(log, (json.dumps(line) + "\n").encode())
    os.close(log)


def train(
    folder: Path, cell: dict[str, Any], attempt: int, rank: int, mechanism: Mechanism,
    point: Callable[[int, str], None], device: torch.device, note: Callable[[str], None],
) -> None:  # fmt: skip
    """Train to the end; the process group is there, if all ranks are one."""
    world, work = mechanism.world_size(), WORKLOADS[cell["workload"]]
    state = State(cell["workload"], cell["seed"], device)
    inputs, targets = work.data(torch.Generator().manual_seed(cell["seed"]))
    mechanism.restore(state)
    note("restored")
    while state.step < cell["steps"]:
        mechanism.begin_step(state)
        if state.step >= cell["steps"]:  # others have gone on to the end
            break
        point(state.step, "boundary")
        ids = state.sampler.window(rank, world)
        output = state.model(inputs[ids].to(device))
        point(state.step, "forward")
        loss = work.loss(output, targets[ids].to(device))
        state.optimizer.zero_grad()
        loss.backward()
        point(state.step, "backward")
        gradients = [p.grad for p in state.model.parameters() if p.grad is not None]
        mechanism.average(gradients, lambda: point(state.step, "collective"))
        if not mechanism.commit(state):
            continue
        state.optimizer.step()
        point(state.step, "optimizer")
        line = {"attempt": attempt, "step": state.step, "loss": loss.item().hex(), "ids": ids}
        if mechanism.present is not None:
            line["with"] = mechanism.present
        line["t"] = time.time()
        append(folder / "ranks" / f"{rank}.jsonl", line)
        state.step += 1
        mechanism.after_step(state)
    mechanism.close(state)
    (folder / f"final-{rank}").write_text(state.digest())


def end_with(launcher: int) -> None:
    """Let this process end with its launcher: the next one uses the same folder."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it ended before that
        os._exit(1)


def set_up(cell: dict[str, Any], rank: int, store: dist.Store | None) -> torch.device:
    """Return the rank's device; with a store the process group is there."""
    torch.set_num_threads(1)
    torch.backends.cudnn.enabled = False
    soft = cell["substrate"] == "soft"
    device = torch.device("cuda", rank) if soft else torch.device("cpu")
    if soft:
        torch.cuda.set_device(device)
    backend = "nccl" if soft else "gloo"
    if store is not None:
        world = int(os.environ["WORLD_SIZE"])
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    return device


def leave_together(store: dist.Store) -> None:
    """End the process group when all ranks have done their last collective.

    gloo's connections end with it. A rank that ends early may reset one from which another rank has
    yet to read the result of that collective.
    """
    world, last = int(os.environ["WORLD_SIZE"]), time.monotonic() + LEAVE_S
    arrived = store.add("left", 1)
    while arrived < world and time.monotonic() < last:
        time.sleep(0.01)
        arrived = store.add("left", 0)
    dist.destroy_process_group()


def main() -> None:
    end_with(int(sys.argv[4]))
    folder, attempt, rank = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    cell = json.loads((folder / "cell.json").read_text())
    times = {"began": BEGAN, "imported": time.time()}
    store = None  # ranks that come and go meet in another way
    if not find(cell["mechanism"]).one_by_one:
        meeting = (folder / f"meeting-{attempt}").absolute()
        store = dist.FileStore(str(meeting), int(os.environ["WORLD_SIZE"]))
    device = set_up(cell, rank, store)
    times["grouped"] = time.time()

    def note(what: str) -> None:
        times[what] = time.time()
        (folder / "ranks" / f"{rank}-{attempt}.times").write_text(json.dumps(times))

    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    mechanism = find(cell["mechanism"])(folder / "checkpoints", rank, max(cell["interval"], 1))
    point = fault_points(folder, cell, rank, synchronize)
    train(folder, cell, attempt, rank, mechanism, point, device, note)
    if store is not None:
        leave_together(store)


if __name__ == "__main__":
    main()
