"""Counts steps of a training in a variable of a module: module_counter.py FATBIN STEPS [WIDTH].

The width of the steps is a constant that the program sets once, in the second step; with WIDTH 1, which
it has anyway, the program asks for no address.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch
from torch import nn

CUDA = ctypes.CDLL(None)  # the driver's functions, wherever they come from


def check(code: int, call: str) -> None:
    assert code == 0, f"{call} returns {code}"


class Counter:
    def __init__(self, image: bytes) -> None:
        self._image = ctypes.create_string_buffer(image)
        self._module, self._count = ctypes.c_void_p(), ctypes.c_void_p()
        check(CUDA.cuModuleLoadData(ctypes.byref(self._module), self._image), "cuModuleLoadData")
        name = ctypes.byref(self._count)
        check(CUDA.cuModuleGetFunction(name, self._module, b"count"), "cuModuleGetFunction")

    def set_width(self, width: int) -> None:
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        where = (ctypes.byref(address), ctypes.byref(size), self._module, b"step_width")
        check(CUDA.cuModuleGetGlobal_v2(*where), "cuModuleGetGlobal_v2")
        value = ctypes.c_uint64(width)
        check(CUDA.cuMemcpyHtoD_v2(address, ctypes.byref(value), 8), "cuMemcpyHtoD_v2")

    def count(self, out: torch.Tensor) -> None:
        address = ctypes.c_uint64(out.data_ptr())
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(address))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shape = [ctypes.c_uint(1)] * 6
        code = CUDA.cuLaunchKernel(self._count, *shape, 0, stream, parameters, None)
        check(code, "cuLaunchKernel")


def main() -> None:
    steps = int(sys.argv[2])
    width = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    torch.manual_seed(1)
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counter = Counter(Path(sys.argv[1]).read_bytes())
    total = torch.zeros(1, dtype=torch.int64, device="cuda")
    for step in range(1, steps + 1):
        if step == 2 and width != 1:
            counter.set_width(width)
        loss = model(torch.ones(4, 8, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        counter.count(total)
        optimizer.step()
        print(f"step={step} loss={loss.item()!r} counter={total.item()}", flush=True)
    assert total.item() == 8 + width * (steps - 1), total


if __name__ == "__main__":
    main()
