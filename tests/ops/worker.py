"""Runs operators of PyTorch's operator database on the soft GPU and on the CPU and compares them.

A child of run.py with the soft GPU's libraries preloaded. Reads one JSON request per line from
stdin, writes one JSON answer per line to the descriptor given as its argument.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import re
import sys
import time
import unittest
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

CPU = "cpu"
CUDA = "cuda"
MAX_SAMPLES = 200
# What TestCommon.test_compare_cpu of PyTorch's own tests allows for every type; types whose
# assert_close is coarser than that get assert_close's.
TOLERANCE = (1e-3, 1e-3)
COARSE = {torch.bfloat16: (1.6e-2, 1e-3), torch.chalf: (2e-3, 1e-3)}
# Values are whatever memory held, or drawn by a generator that the device has of its own. Operators
# that leave their mark on the CPU's generator are recognised without a list.
UNDEFINED = re.compile(r"^(new_)?empty|^resize|^randn$|^randint$|^normal|^uniform|^randint_like$")
# Arguments that must lie on the CPU for either device.
HOST_ARGUMENTS = re.compile(r"^tensor_split$")
LIBRARY = re.compile(
    r"(cusolver|cusparseLt|cusparse|cufft|cublasLt|cublas|cudnn|magma|nccl|nvrtc)", re.IGNORECASE
)
CALL = re.compile(r"calling `?(\w+)")
REFUSED = re.compile(r"softgpu: \[(\w+)\] is not supported")
# Which of several equal elements is meant is up to the device: neither indices nor gradients are
# compared, only the values that come first. `mode` is free in the value itself as well.
TIES = re.compile(r"^(topk|kthvalue|msort|sort|argsort|median|nanmedian|mode)$")
NO_VALUES = re.compile(r"^(argsort|mode)$")
# 16-bit results that are off by no more than this many units in the last place of the largest
# value, or no more than this many times what the CPU's are off, differ by rounding.
ROUNDING_UNITS, ROUNDING_RATIO = 4.0, 3.0
HALVES = {torch.float16: torch.float64, torch.bfloat16: torch.float64}


class RefusedError(Exception):
    """The CPU does not do this case either: nothing to compare with."""


def key(op: Any) -> str:
    """Name an entry of the database so that the name is unique."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def active_decorators(op: Any, dtype: torch.dtype) -> list[Any]:
    """Return what PyTorch puts around its own comparison of CPU and CUDA."""
    return list(op.get_decorators("TestCommon", "test_compare_cpu", CUDA, dtype, {}))


def tolerances(op: Any, dtype: torch.dtype) -> tuple[float, float]:
    """Return rtol and atol."""
    rtol, atol = COARSE.get(dtype, TOLERANCE)
    for decorator in active_decorators(op, dtype):
        if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
            atol = max(atol, decorator.d[dtype].atol)
            rtol = max(rtol, decorator.d[dtype].rtol)
    return rtol, atol


def values_are_defined(op: Any, dtype: torch.dtype) -> bool:
    """Tell whether PyTorch compares this operator's values between CPU and CUDA."""
    if UNDEFINED.search(op.name):
        return False
    for info in op.decorators:
        if (
            getattr(info, "test_name", None) == "test_compare_cpu"
            and info.is_active("TestCommon", "test_compare_cpu", CUDA, dtype, {})
            and not any(isinstance(d, toleranceOverride) for d in info.decorators)
        ):
            return False
    return True


def copy_to(device: str, value: Any) -> Any:
    """Give a tensor of a sample a copy on a device; other values stay."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().to(device, copy=True)
    return copy.requires_grad_(value.requires_grad)


def sample_on(device: str, op: Any, sample: Any) -> Any:
    """Copy a sample whose tensors lie on the CPU."""
    moved = sample.transform(lambda value: copy_to(device, value))
    if HOST_ARGUMENTS.search(op.name):
        moved.args = sample.args
    for name, value in moved.kwargs.items():
        if name == "device" and value is not None:
            moved.kwargs[name] = type(value)(device)
        if name == "driver" and op.name == "linalg.lstsq":
            moved.kwargs[name] = "gels"  # the only one that PyTorch has for CUDA
    return moved


def pick(samples: Any, count: int) -> list[Any]:
    """Take `count` samples from all over the list: the first ones are often trivial."""
    pool = list(itertools.islice(samples, MAX_SAMPLES))
    if len(pool) <= count:
        return pool
    return [pool[int((i + 0.5) * len(pool) / count)] for i in range(count)]


def differentiable(values: Any) -> list[torch.Tensor]:
    """Return the tensors among the values that a gradient reaches."""
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor) and t.requires_grad]


class Run:
    """One sample on one device."""

    def __init__(self, op: Any, sample: Any, device: str) -> None:
        self.sample = sample_on(device, op, sample)
        self.inputs = differentiable((self.sample.input, self.sample.args, self.sample.kwargs))
        torch.manual_seed(1)
        random.seed(1)
        before = torch.get_rng_state()
        result = op(self.sample.input, *self.sample.args, **self.sample.kwargs)
        self.random = not torch.equal(before, torch.get_rng_state())
        self.leaves = tree_leaves(self.sample.output_process_fn_grad(result))

    def gradients(self, weights: list[torch.Tensor]) -> list[torch.Tensor | None]:
        outputs = differentiable(self.leaves)
        # An operator like `to` may answer on another device than the one of its input.
        own = [w.to(o.device) for w, o in zip(weights, outputs, strict=True)]
        return list(torch.autograd.grad(outputs, self.inputs, own, allow_unused=True))


def plain(value: Any) -> Any:
    """Make a tensor comparable: dense, on the CPU, without its history."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    return value.cpu().resolve_conj().resolve_neg()


def compare(what: str, gpu: Any, cpu: Any, rtol: float, atol: float, values: bool) -> None:
    """Raise AssertionError if two results differ."""
    gpu, cpu = plain(gpu), plain(cpu)
    if not isinstance(cpu, torch.Tensor):
        if values and isinstance(cpu, (bool, int, str)):
            assert gpu == cpu, f"{what}: [{gpu}] instead of [{cpu}]"
        return
    assert isinstance(gpu, torch.Tensor), f"{what}: no tensor but [{type(gpu).__name__}]"
    if gpu.is_floating_point() and cpu.is_floating_point():
        # Statistics of normalisations are 32 bits wide on CUDA, as wide as the input on the CPU.
        gpu = gpu.to(cpu.dtype)
    assert gpu.dtype == cpu.dtype, f"{what}: type [{gpu.dtype}] instead of [{cpu.dtype}]"
    assert gpu.layout == cpu.layout, f"{what}: layout [{gpu.layout}] instead of [{cpu.layout}]"
    if not values:
        return
    torch.testing.assert_close(
        gpu, cpu, rtol=rtol, atol=atol, equal_nan=True, check_layout=True,
        msg=lambda text: f"{what}: {' '.join(text.split())}",
    )  # fmt: skip


def widened(value: Any) -> Any:
    """Return 16-bit tensors, and the names of their types, as 64-bit ones."""
    if isinstance(value, torch.dtype):
        return HALVES.get(value, value)
    if value.dtype not in HALVES:
        return value
    return value.detach().to(HALVES[value.dtype]).requires_grad_(value.requires_grad)


def units_off(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the greatest error in units in the last place of the largest exact value."""
    value, exact, limits = plain(value), plain(exact), torch.finfo(value.dtype)
    value, exact = value.double(), exact.double()
    both = torch.isfinite(value) & torch.isfinite(exact)
    alike = (value == exact) | (value.isnan() & exact.isnan())
    overflow = value.isinf() & (exact.abs() > limits.max)
    if not bool((both | alike | overflow).all()):
        return float("inf")
    if not both.any():
        return 0.0
    largest = exact[both].abs().max().clamp(min=limits.tiny)
    return ((value - exact)[both].abs().max() / (largest * limits.eps)).item()


class Comparison:
    """One sample on both devices.

    16-bit results of the CPU may be the less exact ones: it rounds sums that CUDA keeps in 32 bits.
    Where they differ from the soft GPU's, the CPU's 64-bit results for the same inputs decide.
    Differences from these as well that rounding explains are collected; others are raised.
    """

    def __init__(self, op: Any, dtype: torch.dtype, sample: Any) -> None:
        self.op, self.dtype, self.sample = op, dtype, sample
        self.rounded: list[str] = []
        self.bounds = tolerances(op, dtype)
        try:
            self.cpu = Run(op, sample, CPU)
        except Exception as error:
            raise RefusedError(f"the CPU refuses the sample: {first_line(error)}") from error
        try:
            self.gpu = Run(op, sample, CUDA)
        except NotImplementedError as error:
            raise RefusedError(f"PyTorch has no kernel: {first_line(error)}") from error
        torch.cuda.synchronize()
        self.values = values_are_defined(op, dtype) and not self.cpu.random
        self.ties = bool(TIES.search(op.name)) and not sample.kwargs.get("stable")

    def check(self, what: str, gpu: Any, cpu: Any, wide: Callable[[], Any], values: bool) -> None:
        try:
            compare(what, gpu, cpu, *self.bounds, values)
        except AssertionError as difference:
            if self.dtype not in HALVES or not floating(gpu):
                raise
            exact = wide()
            try:
                compare(what, gpu, exact, *self.bounds, values)
            except AssertionError:
                ours, theirs = units_off(gpu, exact), units_off(cpu, exact)
                if ours > max(ROUNDING_UNITS, ROUNDING_RATIO * theirs):
                    raise difference from None
                off = f"off by [{ours:.1f}] units of the largest value, the CPU by [{theirs:.1f}]"
                self.rounded.append(f"{off}: {first_line(difference)}")

    @functools.cached_property
    def wide(self) -> Run:
        return Run(self.op, self.sample.transform(widened), CPU)

    def forward(self) -> None:
        assert len(self.gpu.leaves) == len(self.cpu.leaves), "another number of results"
        for i, (gpu, cpu) in enumerate(zip(self.gpu.leaves, self.cpu.leaves, strict=True)):
            values = self.values and not (self.ties and (i or NO_VALUES.search(self.op.name)))
            self.check(f"result {i}", gpu, cpu, lambda i=i: self.wide.leaves[i], values)

    def backward(self) -> None:
        """Compare the gradients of all inputs for the same random weights of the results."""
        outputs = differentiable(self.cpu.leaves)
        if not outputs or not self.cpu.inputs:
            return
        shapes = [o.shape for o in differentiable(self.gpu.leaves)]
        if shapes != [o.shape for o in outputs]:
            assert not self.values, "results require gradients on one device only"
            return
        torch.manual_seed(2)
        weights = [torch.randn(o.shape, dtype=torch.float64).to(o.dtype) for o in outputs]
        try:
            expected = self.cpu.gradients(weights)
        except Exception as error:
            raise RefusedError(f"the CPU refuses backward: {first_line(error)}") from error
        actual = self.gpu.gradients(weights)
        torch.cuda.synchronize()
        if self.ties:
            return
        exact = functools.cache(lambda: self.wide.gradients([w.double() for w in weights]))
        for i, (gpu, cpu) in enumerate(zip(actual, expected, strict=True)):
            if gpu is None or cpu is None:
                assert gpu is cpu, f"gradient {i} is missing on one device"
            else:
                self.check(f"gradient {i}", gpu, cpu, lambda i=i: exact()[i], self.values)


def floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def first_line(error: BaseException) -> str:
    """Return an exception as one short line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def supports_backward(op: Any, dtype: torch.dtype) -> bool:
    if not op.supports_autograd or not (dtype.is_floating_point or dtype.is_complex):
        return False
    both = op.supported_backward_dtypes(CUDA) & op.supported_backward_dtypes(CPU)
    return dtype in both


def run_samples(op: Any, dtype: torch.dtype, count: int) -> dict[str, Any]:
    """Compare some samples of one operator."""
    grad = supports_backward(op, dtype)
    defined = values_are_defined(op, dtype)
    torch.manual_seed(0)
    random.seed(0)
    done, refused, drawn = 0, "", False
    rounded: list[str] = []
    for sample in pick(op.sample_inputs(CPU, dtype, requires_grad=grad), count):
        try:
            both = Comparison(op, dtype, sample)
            drawn = drawn or both.cpu.random
            both.forward()
            if grad:
                both.backward()
            rounded += both.rounded
            done += 1
        except RefusedError as error:
            refused = str(error)
    if not done:
        return {"status": "excluded", "reason": refused or "no samples"}
    if rounded:
        reason = f"rounding, [{len(rounded)}] times; {rounded[0]}"
        return {"status": "failed", "reason": reason, "rounding": True}
    note = {} if defined and not drawn else {"note": "values not compared"}
    return {"status": "passed", "samples": done, "backward": grad, **note}


def refused_library(text: str) -> str:
    """Name the library, and if possible the call, that a message is about; empty if none."""
    stub = REFUSED.search(text)
    if stub:
        return stub.group(1)
    call = CALL.search(text)
    if call and LIBRARY.search(call.group(1)):
        return call.group(1)
    library = LIBRARY.search(text)
    return library.group(1).lower() if library else ""


class Messages:
    """What the process wrote to stderr since the last look: stubs name themselves there."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "rb")  # noqa: SIM115 (open for the process's life)

    def new(self) -> str:
        return self.file.read().decode(errors="replace")


def run_one(op: Any, dtype: torch.dtype, count: int, messages: Messages) -> dict[str, Any]:
    """Return status and reason of one operator and type."""
    for device in (CUDA, CPU):
        if dtype not in op.supported_dtypes(device):
            return {"status": "excluded", "reason": f"not for this type on {device}"}
    messages.new()
    try:
        return run_samples(op, dtype, count)
    except unittest.SkipTest as error:
        return {"status": "excluded", "reason": first_line(error)}
    except Exception as error:
        reason = first_line(error)
        library = refused_library(f"{messages.new()} {error}")
        unsupported = library and not isinstance(error, AssertionError)
        return {
            "status": "unsupported" if unsupported else "failed",
            "reason": reason,
            **({"library": library} if unsupported else {}),
        }


def device_is_dead() -> str:
    """Return why the device takes no more work; empty if it does."""
    try:
        torch.cuda.synchronize()
    except Exception as error:
        return first_line(error)
    return ""


def main() -> None:
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    messages = Messages(sys.argv[2])
    # torch.testing forbids the public setter: its tests must not change global flags.
    torch._C._set_cudnn_enabled(False)
    torch.set_num_threads(1)
    torch.zeros(1, device=CUDA)
    ops = {key(op): op for op in op_db}
    print(json.dumps({"ops": list(ops)}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        started = time.monotonic()
        dtype = getattr(torch, request["dtype"])
        answer = run_one(ops[request["op"]], dtype, request["samples"], messages)
        answer["seconds"] = round(time.monotonic() - started, 2)
        answer["dead"] = device_is_dead()
        print(json.dumps(answer), file=answers)
    # The interpreter's own end would wait for a device that may be dead.
    os._exit(0)


if __name__ == "__main__":
    main()
