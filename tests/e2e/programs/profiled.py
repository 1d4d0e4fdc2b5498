"""A few training steps, the last of them under torch.profiler unless told otherwise.

Prints losses and a digest of the weights as bits. With `--rows FILE` it writes what the profiler
has seen: `averages` of operators, `launches` of the program and `rows` of the device.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

BEFORE, PROFILED = 2, 3


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, device: str) -> float:
    """One step with a copy to the device and one back."""
    batch = torch.randn(16, 24).to(device)
    optimizer.zero_grad()
    loss = torch.relu(model(batch)).square().mean() + torch.mm(batch, batch.t()).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def events(trace: dict) -> dict[str, list[dict]]:
    """The trace's rows of the device, the calls that have launched them, its flows, and waits."""
    complete = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    of_device = {"kernel", "gpu_memcpy", "gpu_memset"}
    return {
        "rows": [event for event in complete if event.get("cat") in of_device],
        "calls": [e for e in complete if e.get("cat") in {"cuda_runtime", "cuda_driver"}],
        "flows": [e for e in trace["traceEvents"] if e.get("cat") == "ac2g"],
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    torch.manual_seed(7)
    model = torch.nn.Linear(24, 8).to(arguments.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = [step(model, optimizer, arguments.device) for _ in range(BEFORE)]
    if arguments.rows:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            losses += [step(model, optimizer, arguments.device) for _ in range(PROFILED)]
        with tempfile.TemporaryDirectory() as folder:
            profiler.export_chrome_trace(f"{folder}/trace.json")
            seen = events(json.loads(Path(folder, "trace.json").read_text()))
        seen["averages"] = {  # type: ignore[assignment]
            average.key: average.device_time_total for average in profiler.key_averages()
        }
        arguments.rows.write_text(json.dumps(seen))
    else:
        losses += [step(model, optimizer, arguments.device) for _ in range(PROFILED)]
    losses += [step(model, optimizer, arguments.device)]
    for loss in losses:
        print(f"loss {loss.hex()}")
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
