"""CUDA tensors shared between processes through torch.multiprocessing."""

from __future__ import annotations

import torch
import torch.multiprocessing as mp


def child(inbox: mp.Queue, outbox: mp.Queue) -> None:
    """Read shared tensors, change one, share one of its own."""
    small, large = inbox.get(), inbox.get()
    sums = (small.sum().item(), large.sum().item())
    small.add_(1)
    large[5] = 7
    torch.cuda.synchronize()
    mine = torch.full((300, 1000), 3.0, device="cuda")
    mine[1].zero_()
    outbox.put((sums, mine))
    assert inbox.get() == "done"
    del small, large


def main() -> None:
    """Check that both processes see the same memory."""
    mp.set_start_method("spawn")
    inbox, outbox = mp.Queue(), mp.Queue()
    process = mp.Process(target=child, args=(inbox, outbox))
    process.start()
    small = torch.arange(1000.0, device="cuda")
    large = torch.ones(1000, 1000, device="cuda")
    inbox.put(small)
    inbox.put(large)
    sums, theirs = outbox.get(timeout=120)
    assert sums == (499500.0, 1e6), sums
    assert small[:3].tolist() == [1.0, 2.0, 3.0]
    assert large[4:7, 0].tolist() == [1.0, 7.0, 1.0]
    assert theirs.sum().item() == 299 * 3000
    assert (theirs + large[:300]).sum().item() == 299 * 3000 + 300_000 + 6000
    del theirs
    torch.cuda.synchronize()
    inbox.put("done")
    process.join(60)
    assert process.exitcode == 0, process.exitcode
    print("ok")


if __name__ == "__main__":
    main()
