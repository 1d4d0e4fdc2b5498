"""`make demo`: lose a GPU in the middle of a training, and show that the script did not notice.

The same script trains a small GPT four times on two ranks: through rings and servers, the same
while one of the two soft GPUs is lost, with the GPUs inside the processes (--direct), and on
the CPU. The first three have to agree in every bit, and so have the ranks.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from recording import Recording
from training import MODES, Training, largest_relative_difference, train

RANKS = 2
COMPARED_STEPS = 5
TOLERANCE = 1e-4
TITLES = {
    "proxied": "2 soft GPUs behind servers (pyft run)",
    "faulty": "the same, and GPU 1 is lost on the way",
    "direct": "2 soft GPUs inside the processes (pyft run --direct)",
    "cpu": "torch on the CPU, 2 processes",
}


def options_of(mode: str, steps: int) -> tuple[str, ...]:
    """Return what `pyft run` is told beside the number of GPUs."""
    if mode != "faulty":
        return ()
    return ("--spares", "1", "--inject", f"gpu-lost,rank=1,step={max(1, steps // 2)}")


def run(mode: str, steps: int, recording: Recording) -> Training:
    """Train in one of the ways, and show how far it is and what pyft says of it."""
    started = time.monotonic()

    def progress(step: int) -> None:
        seconds = time.monotonic() - started
        line = f"{TITLES[mode]}: step {step}/{steps}, {seconds:.0f} s"
        if step == steps:
            recording.say(line)
        else:
            recording.progress(line)

    way = "proxied" if mode == "faulty" else mode
    with tempfile.TemporaryFile("w+") as errors:
        result = train(
            *(way, ["--steps", str(steps)], RANKS, progress),
            options=options_of(mode, steps),
            errors=errors,
        )
        errors.seek(0)
        said = errors.read()
    if result.exit_code or len(result.losses) != steps:
        print(said, file=sys.stderr, end="")
        raise SystemExit(
            f"demo: {TITLES[mode]} ended with [{result.exit_code}] after step "
            f"[{len(result.losses)}] of [{steps}]"
        )
    for line in said.splitlines():
        if line.startswith(("pyft: injects", "pyft: rank", "softgpu:")):
            recording.say(line)
    return result


def ranks_agree(training: Training) -> bool:
    """Say whether every rank has printed one and the same hash of its parameters."""
    return len(training.parameters) == RANKS and len(set(training.parameters.values())) == 1


def same(one: Training, other: Training) -> bool:
    """Say whether losses and parameters agree bit for bit."""
    return one.losses == other.losses and one.parameters == other.parameters


def recovery(training: Training) -> dict[str, Any]:
    """Return the part of the report about faults."""
    return training.report.get("recovery", {})


def fault_rows(training: Training) -> list[tuple[str, str]]:
    """Return what happened to the GPU, as lines of the table."""
    return [
        (
            f"rank {fault['rank']}: {fault['fault']}, GPU {fault['gpu_from']} to {fault['gpu_to']}",
            f"{fault['outcome']} after {(fault['ended'] - fault['began']) * 1e3:.0f} ms, "
            f"{fault['replayed_entries']} entries replayed, {fault['verdict']}",
        )
        for fault in recovery(training).get("faults", [])
    ]


def check(runs: dict[str, Training]) -> list[str]:
    """Return what is wrong."""
    proxied, direct, cpu = (runs[mode] for mode in MODES)
    wrong = []
    if not same(proxied, runs["faulty"]):
        wrong.append("the run that lost a GPU differs from the undisturbed one")
    if recovery(runs["faulty"]).get("recovered") != 1:
        wrong.append("the lost GPU was not replaced")
    if not same(proxied, direct):
        wrong.append("proxied and direct runs differ in their bits")
    if not ranks_agree(proxied):
        wrong.append("the ranks differ in their parameters")
    difference = largest_relative_difference(proxied, cpu, COMPARED_STEPS)
    if difference > TOLERANCE:
        wrong.append(f"losses differ from the CPU's by [{difference:.1e}] relative")
    if float(proxied.losses[-1]) >= float(proxied.losses[0]):
        wrong.append("the loss has not fallen")
    return wrong


def counters(training: Training, steps: int) -> dict[str, float]:
    """Return what the header of rank 0's ring counted, per step (set-up included)."""
    channels = training.report.get("channels") or [{}]
    channel = max(
        (c for c in channels if c.get("rank", 0) == 0), key=lambda c: c.get("appended", 0)
    )
    local, entries = channel.get("local_calls", 0), channel.get("entries_total", 0)
    return {
        "CUDA calls answered in the process": local / steps,
        "entries in the ring": entries / steps,
        "ring bytes": channel.get("appended", 0) / steps,
        "payload bytes": channel.get("arena_head", 0) / steps,
    }


def table(runs: dict[str, Training], steps: int) -> list[str]:
    """Return the lines that sum up all runs."""
    proxied, direct, cpu = (runs[mode] for mode in MODES)
    times = {mode: statistics.median(runs[mode].step_seconds() or [0.0]) for mode in MODES}
    difference = largest_relative_difference(proxied, cpu, COMPARED_STEPS)
    rows = [
        ("steps", str(steps)),
        ("loss, first and last step", f"{proxied.losses[0][:7]} -> {proxied.losses[-1][:7]}"),
        ("ranks with the same parameters", f"{RANKS}: yes" if ranks_agree(proxied) else "NO"),
        *fault_rows(runs["faulty"]),
        ("with the fault = without, bit for bit", "yes" if same(proxied, runs["faulty"]) else "NO"),
        ("proxied = direct, bit for bit", "yes" if same(proxied, direct) else "NO"),
        (f"largest difference to the CPU, {COMPARED_STEPS} steps", f"{difference:.1e}"),
    ]
    rows += [(f"{name}, per step", f"{n:,.0f}") for name, n in counters(proxied, steps).items()]
    rows.append(("step time, proxied", f"{times['proxied'] * 1e3:.0f} ms"))
    for mode, title in (("direct", "--direct"), ("cpu", "torch on the CPU")):
        ratio = times["proxied"] / times[mode] if times[mode] else float("nan")
        rows.append((f"step time, {title}", f"{times[mode] * 1e3:.0f} ms (x {ratio:.2f})"))
    width = max(len(name) for name, _ in rows)
    return ["", *(f"  {name:<{width}}  {value}" for name, value in rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--record", type=Path, metavar="SVG", help="keep the output as a picture")
    arguments = parser.parse_args()
    recording = Recording()
    runs = {mode: run(mode, arguments.steps, recording) for mode in TITLES}
    for line in table(runs, arguments.steps):
        recording.say(line)
    wrong = check(runs)
    if arguments.record and not wrong:
        recording.save(arguments.record, "make demo")
    print("\nLook at the recorded commands: .venv/bin/pyft trace --tail 20")
    for sentence in wrong:
        print(f"demo: {sentence}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
