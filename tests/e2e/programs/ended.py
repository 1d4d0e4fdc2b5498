"""Two ranks; the second one ends early, and the first one goes on as the word says."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
KIND, END, *MORE = sys.argv[1:]


class UniqueId(ctypes.Structure):
    """ncclUniqueId, which goes by value."""

    _fields_ = (("internal", ctypes.c_uint8 * 128),)


def end() -> None:
    """End as the word says."""
    if END == "asked":  # by a file
        print("pid", os.getpid(), flush=True)
        while not Path(MORE[0], "go").exists():
            tensor().sum().item()
        sys.exit(0)
    if END == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if END == "raise":
        raise ValueError("the second rank has had enough")
    sys.exit(0)


def tensor() -> torch.Tensor:
    return torch.ones(1000, device="cuda")


def collective() -> None:
    dist.all_reduce(tensor(), async_op=True).wait()


def value() -> None:
    """What is in memory is no sum. PyTorch's watchdog ends the process."""
    totals = [tensor(), tensor()]
    for total in totals:
        dist.all_reduce(total)
    print("waits for its sum", flush=True)
    print("got", totals[0][0].item(), flush=True)


def receive() -> None:
    """One message has been sent, and comes; the next one does not."""
    got = tensor()
    dist.recv(got, src=1)
    assert got[0].item() == 5.0
    print("the first message is there", flush=True)
    dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, 1), dist.P2POp(dist.isend, got, 1)])[
        -1
    ].wait()


def meet(folder: Path) -> None:
    """Whoever has made the unique id of a communicator ends before the other one comes."""
    file, whole = folder / "id", folder / "id.part"
    nccl, id = ctypes.CDLL(None), UniqueId()
    if RANK == 1:
        assert nccl.ncclGetUniqueId(ctypes.byref(id)) == 0
        whole.write_bytes(bytes(id))
        whole.rename(file)
        end()
    while not file.exists():
        time.sleep(0.01)
    id = UniqueId.from_buffer_copy(file.read_bytes())
    sys.exit(nccl.ncclCommInitRank(ctypes.byref(ctypes.c_void_p()), 2, id, 0))


def sharded() -> None:
    """An additional forward of one rank gathers parameters which the other one has no part in."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    print("trained", flush=True)
    if RANK == 1:
        end()
    with torch.no_grad():
        model(torch.ones(4, 64, device="cuda"))


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if KIND == "meet":
        return meet(Path(MORE[0]))
    dist.init_process_group("nccl")
    dist.all_reduce(tensor())
    if KIND == "sharded":
        sharded()
    elif RANK == 1:
        if KIND == "receive":
            dist.send(tensor() * 5, dst=0)
        torch.cuda.synchronize()
        end()
    else:
        {"collective": collective, "receive": receive, "value": value}[KIND]()
    dist.all_reduce(tensor(), async_op=True).wait()  # raises, with TORCH_NCCL_BLOCKING_WAIT
    return None


if __name__ == "__main__":
    main()
