"""Trials of a campaign: each is one training step of a small model, the same every time.

A trial restores everything, makes one step with a batch of its own (the window in which a fault is
wanted), then what a replica would do that has had the same gradients, then --horizon clean steps.
It prints one line of JSON. Which launch is hit is the environment's affair (SOFTGPU_FAULT), so the
same program runs directly and with servers. `dmr_campaign.py` starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from example_support import DTYPES, TextWindows, add_text_arguments, make_parser, print_line
from train_gpt import GPT, loss_of


class _State(ctypes.Structure):
    _fields_ = (
        ("error", ctypes.c_int),
        ("needs", ctypes.c_int),
        ("hanging", ctypes.c_int),
        ("launches", ctypes.c_ulonglong),
    )


def launches() -> int:
    """Return how many launches this process has made; -1 where a server makes them."""
    torch.cuda.synchronize()
    try:
        look = ctypes.CDLL(None).softgpu_device_state
    except AttributeError:
        return -1
    state = _State()
    look(0, ctypes.byref(state))
    return int(state.launches)


def sha(tensors: list[Tensor]) -> str:
    """Return a digest of the bits."""
    raw = torch.cat([one.detach().reshape(-1).view(torch.uint8) for one in tensors]).cpu()
    return hashlib.sha256(bytes(raw.tolist())).hexdigest()[:32]


class Copy:
    """A model with its optimizer, which can go back to where it began."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.model = GPT(args).cuda()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=args.lr)
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()  # makes its state
        self.kept = [one.detach().clone() for one in self.all()]

    def all(self) -> list[Tensor]:
        """Return all that a replica has to have as well."""
        states = [self.optimizer.state[one] for one in self.parameters]
        return [*self.parameters, *(one["exp_avg"] for one in states),
                *(one["exp_avg_sq"] for one in states)]  # fmt: skip

    def restore(self) -> None:
        """Go back to the beginning."""
        with torch.no_grad():
            for now, before in zip(self.all(), self.kept, strict=True):
                now.copy_(before)
            for one in self.parameters:
                self.optimizer.state[one]["step"].fill_(1)
                one.grad = None


class Trials:
    """The model, the replica, and the batches."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.mine, self.replica = Copy(args), Copy(args)
        self.steps, self.per_trial = 2, 2 + args.horizon
        batches = TextWindows(args, args.block + 1)
        self.batches = [batches.next()[0].cuda() for _ in range(args.horizon + 2)]
        self.mixed = DTYPES[args.dtype] if args.dtype != "fp32" else None

    def _cast(self) -> contextlib.AbstractContextManager[object]:
        return torch.autocast("cuda", self.mixed) if self.mixed else contextlib.nullcontext()

    def _gradients(self, copy: Copy, batch: Tensor) -> Tensor:
        copy.optimizer.zero_grad(set_to_none=True)
        with self._cast():
            loss = loss_of(copy.model, (batch,))
        loss.backward()
        return loss.detach()

    def others(self) -> None:
        """Compute what the other rank adds to the gradients: the same in each trial."""
        self.mine.restore()
        torch.manual_seed(self.args.seed + 1)
        self._gradients(self.mine, self.batches[1])
        self.theirs = [one.grad.clone() for one in self.mine.parameters]

    def one(self) -> dict[str, object]:
        """Make a trial."""
        self.mine.restore()
        self.replica.restore()
        torch.manual_seed(self.args.seed)
        begin = launches()
        loss = self._gradients(self.mine, self.batches[0])
        for one, theirs in zip(self.mine.parameters, self.theirs, strict=True):
            one.grad.add_(theirs).mul_(0.5)  # the all-reduce: both ranks have the same from here on
        given = [one.grad.clone() for one in self.mine.parameters]
        self.mine.optimizer.step()
        end = launches()
        for one, gradient in zip(self.replica.parameters, given, strict=True):
            one.grad = gradient
        self.replica.optimizer.step()
        self.steps += self.per_trial
        found: dict[str, object] = {"state": sha(self.mine.all())}
        found["replica"] = sha(self.replica.all())
        found["loss"] = loss.item().hex()
        found["later"] = [x.item() for x in self._later()]
        return found | {"begin": begin, "end": end, "after": launches()}

    def align(self) -> None:
        """Have the first step of a trial, which is the one with a fault, be a multiple of a trial's.

        With PYFT_CUT_EVERY of that many steps each trial's snapshot is the one behind that step.
        """
        for _ in range(-(self.steps + 1) % self.per_trial):
            self.mine.optimizer.step()
            self.steps += 1

    def ground(self) -> str:
        """Return a digest of what each trial begins with, which a fault may hit as well."""
        return sha([*self.mine.kept, *self.replica.kept, *self.theirs, *self.batches])

    def _later(self) -> Iterator[Tensor]:
        for batch in self.batches[2:]:
            torch.manual_seed(self.args.seed)
            yield self._gradients(self.mine, batch)
            self.mine.optimizer.step()


def main() -> None:
    parser = make_parser(__doc__.splitlines()[0], optimizer="adamw", lr=1e-3)
    add_text_arguments(parser)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--trials", type=int, required=True)
    parser.add_argument("--horizon", type=int, default=3)
    parser.set_defaults(channels=32, block=16, layers=2, heads=2, batch=2, text_bytes=100_000)
    args = parser.parse_args()
    trials = Trials(args)
    trials.others()
    run: Callable[[], dict[str, object]] = trials.one
    for _ in range(2):  # memory of the allocator, modules, what launches learn
        run()
        trials.ground()
    trials.align()
    print_line(json.dumps({"ready": launches(), "steps": trials.steps}))
    ground = trials.ground()
    for _ in range(args.trials):
        print_line(json.dumps(run()))
        if trials.ground() != ground:
            return  # the next trial would not begin where this one did: another process makes it


if __name__ == "__main__":
    main()
