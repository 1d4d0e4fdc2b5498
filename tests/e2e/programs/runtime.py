"""What scripts ask of a GPU besides training: prints one `name value` line per question."""

import contextlib
import os
import threading

import pynvml
import torch


def copies() -> bool:
    """Larger than any staging area may hold at once, and back."""
    host = torch.arange(20_000_000, dtype=torch.int32)
    return torch.equal(host.cuda().cpu(), host)


def out_of_memory() -> bool:
    try:
        torch.empty(40 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return torch.ones(4, device="cuda").sum().item() == 4
    return False


def pinned_round_trip() -> bool:
    source = torch.randn(1 << 18).pin_memory()
    result = torch.empty(1 << 18, pin_memory=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        result.copy_(source.to("cuda", non_blocking=True) * 2, non_blocking=True)
    stream.synchronize()
    return source.is_pinned() and torch.equal(result, source * 2)


def threads() -> bool:
    sums = {}

    def work(k: int) -> None:
        x = torch.full((1000,), float(k), device="cuda")
        for _ in range(50):
            x = x + 1
        sums[k] = x.sum().item()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sums == {k: (k + 50) * 1000.0 for k in range(8)}


def forked_child() -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            torch.zeros(1, device="cuda")
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7 and threads()


def nvml_agrees() -> bool:
    """Frameworks ask NVML before they touch CUDA. Both have to say the same."""
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    capability = pynvml.nvmlDeviceGetCudaComputeCapability(device)
    memory = pynvml.nvmlDeviceGetMemoryInfo(device).total
    pynvml.nvmlShutdown()
    properties = torch.cuda.get_device_properties(0)
    same = tuple(capability) == (properties.major, properties.minor)
    return same and memory == properties.total_memory


def sorting() -> bool:
    x = torch.randn(5000)
    y = x.cuda()
    same = torch.equal(y.sort()[0].cpu(), x.sort()[0])
    return same and torch.equal(y.topk(7)[0].cpu(), x.topk(7)[0])


def device_assert() -> bool:
    """Last: the error sticks."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(10, device="cuda")[torch.tensor([100], device="cuda")].sum().item()
    try:
        torch.zeros(1, device="cuda").item()
    except RuntimeError as error:
        return "device-side assert" in str(error)
    return False


if __name__ == "__main__":
    tests = (copies, out_of_memory, pinned_round_trip, threads, forked_child, nvml_agrees)
    for test in (*tests, sorting, device_assert):
        print(test.__name__, test(), flush=True)
    os._exit(0)  # PyTorch's own clean-up aborts on a GPU that has failed
