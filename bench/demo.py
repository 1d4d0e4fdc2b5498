"""`make demo`: train a small GPT through pyft on a software GPU, and check it.

The same script runs three times on two ranks: through rings and servers, with the software GPUs inside
the processes (--direct), and on the CPU. Proxied and direct have to agree in every bit, and so have the ranks.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from training import MODES, Training, largest_relative_difference, train

RANKS = 2
COMPARED_STEPS = 5
TOLERANCE = 1e-4
TITLES = {
    "proxied": "2 soft GPUs behind servers (pyft run)",
    "direct": "2 soft GPUs inside the processes (pyft run --direct)",
    "cpu": "torch on the CPU, 2 processes",
}


def run(mode: str, steps: int) -> Training:
    started = time.monotonic()

    def progress(step: int) -> None:
        seconds = time.monotonic() - started
        line = f"{TITLES[mode]}: step {step}/{steps}, {seconds:.0f} s"
        if sys.stdout.isatty():
            print(f"\r{line}", end="", flush=True)
        elif step in (1, steps):
            print(line, flush=True)

    result = train(mode, ["--steps", str(steps)], ranks=RANKS, on_step=progress)
    if sys.stdout.isatty():
        print()
    if result.exit_code or len(result.losses) != steps:
        raise SystemExit(
            f"demo: {TITLES[mode]} ended with [{result.exit_code}] after step "
            f"[{len(result.losses)}] of [{steps}]"
        )
    return result


def ranks_agree(training: Training) -> bool:
    """Say whether every rank has printed one and the same hash of its parameters."""
    return len(training.parameters) == RANKS and len(set(training.parameters.values())) == 1


def check(runs: dict[str, Training]) -> list[str]:
    """Return what is wrong."""
    proxied, direct, cpu = (runs[mode] for mode in MODES)
    wrong = []
    if proxied.losses != direct.losses or proxied.parameters != direct.parameters:
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


def print_table(runs: dict[str, Training], steps: int) -> None:
    proxied, direct, cpu = (runs[mode] for mode in MODES)
    times = {mode: statistics.median(runs[mode].step_seconds() or [0.0]) for mode in MODES}
    difference = largest_relative_difference(proxied, cpu, COMPARED_STEPS)
    rows = [
        ("steps", str(steps)),
        ("loss, first and last step", f"{proxied.losses[0][:7]} -> {proxied.losses[-1][:7]}"),
        ("ranks with the same parameters", f"{RANKS}: yes" if ranks_agree(proxied) else "NO"),
        ("proxied = direct, bit for bit", "yes" if proxied.losses == direct.losses else "NO"),
        (f"largest difference to the CPU, {COMPARED_STEPS} steps", f"{difference:.1e}"),
    ]
    rows += [(f"{name}, per step", f"{n:,.0f}") for name, n in counters(proxied, steps).items()]
    rows.append(("step time, proxied", f"{times['proxied'] * 1e3:.0f} ms"))
    for mode, title in (("direct", "--direct"), ("cpu", "torch on the CPU")):
        ratio = times["proxied"] / times[mode] if times[mode] else float("nan")
        rows.append((f"step time, {title}", f"{times[mode] * 1e3:.0f} ms (x {ratio:.2f})"))
    width = max(len(name) for name, _ in rows)
    print()
    for name, value in rows:
        print(f"  {name:<{width}}  {value}")
    print("\nLook at the recorded commands: .venv/bin/pyft trace --tail 20")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    runs = {mode: run(mode, steps) for mode in MODES}
    print_table(runs, steps)
    wrong = check(runs)
    for sentence in wrong:
        print(f"demo: {sentence}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
