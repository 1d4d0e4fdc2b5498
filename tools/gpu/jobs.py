"""Programs through the proxy beside the same without it: equal bits, and what it costs."""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import sys
import time

from checklist import Check, FailError, SkipError
from machine import ROOT, Machine

MODELS = ("train_gpt.py", "train_bert.py", "train_cnn.py", "train_t5.py")
PAIRS = 5
SMOKE_STEPS = 3
RESULT = re.compile(r"loss=|sha256=|wrong=")
# NAME:LAYERS:CHANNELS:BLOCK:BATCH:STEPS of the models whose steps are timed, and their bounds.
TIMED = {"gpt2": ("12:768:256:8:20", 1.01), "tiny": ("2:128:64:8:60", 1.03)}
TIMED_SNAPSHOT = {"gpt2": ("12:768:256:8:80", None), "tiny": ("2:128:64:8:400", None)}
TIMED_SOFT = {"small": ("1:64:32:2:5", None)}
ENQUEUE = "x.add_(y) of 32 floats, enqueued"
BURST = "1000 x.add_(y) and one synchronize, each"
TRIP = "x.add_(y) and synchronize"
TO_GPU, TO_HOST = "copy of 64 MiB to the GPU", "copy of 64 MiB to the host"
COPY_BYTES = 64 << 20


def results(output: str) -> list[str]:
    """Return the lines that must be equal: losses, hashes, counts."""
    return sorted(line for line in output.splitlines() if RESULT.search(line))


def compare(machine: Machine, program: list[str]) -> list[str]:
    """Run a program both ways; return the lines in which both agree."""
    native = results(machine.run(machine.native_run(program)))
    proxied = results(machine.run(machine.proxied(program)))
    if not native:
        raise FailError("the program prints no loss")
    if native != proxied:
        pairs = zip(native, proxied, strict=False)
        first = next((pair for pair in pairs if pair[0] != pair[1]), ("", "fewer lines"))
        raise FailError(f"native [{first[0][:90]}], proxied [{first[1][:90]}]")
    return native


def smoke(machine: Machine) -> list[str]:
    """Train a few steps: whether anything works at all."""
    report = machine.report()
    program = [sys.executable, str(ROOT / "examples" / "train_gpt.py"), "--steps", str(SMOKE_STEPS)]
    began = time.monotonic()
    lines = results(machine.run(machine.proxied(program, "--report", str(report))))
    took = time.monotonic() - began
    if len(lines) != SMOKE_STEPS + 1:
        raise FailError(f"[{len(lines)}] lines of results instead of [{SMOKE_STEPS + 1}]", lines)
    if wrong := json.loads(report.read_text()).get("recovery", {}).get("faults"):
        raise FailError(f"nothing was to fail: {[one['fault'] for one in wrong]}")
    return [f"{SMOKE_STEPS} steps of train_gpt in {took:.1f} s", lines[-1]]


def examples(machine: Machine) -> list[str]:
    """Compare the four examples, bit for bit."""
    steps = "10" if machine.gpu else "2"
    words = " + ".join(f"{script} --steps {steps}" for script in MODELS).split()
    lines = compare(machine, machine.python("several.py", *words))
    hashes = sum("sha256" in line for line in lines)
    if hashes != len(MODELS):
        raise FailError(f"[{hashes}] of [{len(MODELS)}] examples have ended")
    return [f"{len(MODELS)} examples, {steps} steps each: {len(lines)} losses and hashes equal"]


def hugging_face(machine: Machine) -> list[str]:
    """Compare GPT-2, BERT-base and T5-small with random weights."""
    if importlib.util.find_spec("transformers") is None:
        raise SkipError("transformers is not installed")
    words = ("5",) if machine.gpu else ("1", "6")
    lines = compare(machine, machine.python("hugging_face.py", *words))
    return [f"{len(lines)} losses and hashes equal"]


def overhead(machine: Machine) -> list[str]:
    """Compare step times of proxied and native runs that take turns."""
    timed = TIMED if machine.gpu else TIMED_SOFT
    program = machine.python("step_times.py", *(f"{n}:{text}" for n, (text, _) in timed.items()))
    ratios: dict[str, list[float]] = {name: [] for name in timed}
    native_ms: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(PAIRS):
        native = json.loads(machine.run(machine.native_run(program)).splitlines()[-1])
        without = machine.proxied(program, "--protect", "none")  # snapshots are measured apart
        proxied = json.loads(machine.run(without).splitlines()[-1])
        for name in timed:
            base = statistics.median(native[name])
            native_ms[name].append(base * 1e3)
            ratios[name].append(statistics.median(proxied[name]) / base)
    texts, wrong = [], []
    for name, (_, bound) in timed.items():
        ratio = statistics.median(ratios[name])
        text = f"{name} {statistics.median(native_ms[name]):.2f} ms, proxied/native {ratio:.3f}"
        texts.append(f"{text} ({min(ratios[name]):.3f} to {max(ratios[name]):.3f}, {PAIRS} pairs)")
        if bound and ratio > bound:
            wrong.append(f"{texts[-1]} is above {bound}")
    if wrong:
        raise FailError("; ".join(wrong))
    return texts


def snapshot_cost(machine: Machine) -> list[str]:
    """Compare the mean step with snapshots after steps and without: K rises as their cost asks."""
    timed = TIMED_SNAPSHOT if machine.gpu else TIMED_SOFT
    program = machine.python("step_times.py", *(f"{n}:{text}" for n, (text, _) in timed.items()))
    report = machine.report()
    means = {}
    for protect in ("none", "snapshot"):
        command = machine.proxied(program, "--protect", protect, "--report", str(report))
        out = machine.run(command).splitlines()[-1]
        means[protect] = {name: statistics.mean(times) for name, times in json.loads(out).items()}
    return [
        f"{name} {means['none'][name] * 1e3:.2f} ms, snapshot/none "
        f"{means['snapshot'][name] / means['none'][name]:.3f} (means)"
        for name in timed
    ] + snapshotted(json.loads(report.read_text())["channels"][0]["store"])


def snapshotted(store: dict[str, int]) -> list[str]:
    """Return what snapshots have copied, where, how fast, and what commands waited for them."""
    snapshots = max(store["snapshots"], 1)
    later = store["later_bytes"]

    def speed(amount: int, nanoseconds: int) -> str:
        return f"{amount / 1e6:.0f} MB at {amount / nanoseconds if nanoseconds else 0:.2f} GB/s"

    def each(name: str) -> str:
        return f"{store[name] / snapshots / 1e6:.3f} ms"

    return [
        f"{store['snapshots']} snapshots, {store['cancelled']} cancelled, K {store['cut_every']}",
        f"copied at cuts {speed(store['copied_bytes'] - later, store['copy_ns'])}, behind them "
        f"{speed(later, store['later_ns'])} of a thread",
        f"a snapshot: gate wait {each('gate_ns')}, commands waited {each('kept_ns')} in all; at the "
        f"cut join {each('drain_ns')}, hashing {each('hash_ns')}, copying {each('copy_ns')}",
    ]


def calls(machine: Machine) -> list[str]:
    """Return what calls cost, beside native."""
    script = [sys.executable, str(ROOT / "bench" / "micro.py")]
    times = {}
    for how, command in (
        ("native", machine.native_run(script)),
        ("proxied", machine.proxied(script)),
    ):
        times[how] = json.loads(machine.run(command).splitlines()[-1])

    def beside(name: str, scale: float, unit: str) -> str:
        values = [f"{scale * statistics.median(times[how][name]):.3g}" for how in times]
        return f"{values[1]} {unit} (native {values[0]})"

    def per_second(name: str, amount: float, unit: str) -> str:
        rates = [amount / statistics.median(times[how][name]) for how in times]
        return f"{rates[1]:.3g} {unit} (native {rates[0]:.3g})"

    return [
        f"enqueue {beside(ENQUEUE, 1e3, 'ns')}",
        f"launches {per_second(BURST, 1e6, '1/s')}",
        f"launch and wait {beside(TRIP, 1, 'us')}",
        f"H2D pageable {per_second(TO_GPU, COPY_BYTES / 1e3, 'GB/s')}",
        f"D2H pageable {per_second(TO_HOST, COPY_BYTES / 1e3, 'GB/s')}",
    ]


def operators(machine: Machine) -> list[str]:
    """Compare outcomes of a sample of the operator database."""
    every, seconds = (5, 25) if machine.gpu else (40, 25)
    program = machine.python("ops_sample.py", str(every), str(seconds))
    native = json.loads(machine.run(machine.native_run(program)).splitlines()[-1])
    proxied = json.loads(machine.run(machine.proxied(program)).splitlines()[-1])
    both = sorted(native.keys() & proxied.keys())
    different = [name for name in both if native[name] != proxied[name]]
    if different or not both:
        shown = [f"{name}: {native[name]} / {proxied[name]}" for name in different[:5]]
        raise FailError(f"[{len(different)}] of [{len(both)}] differ, native / proxied: {shown}")
    failing = sum(outcome.endswith("Error") for outcome in native.values())
    return [f"{len(both)} operators have the same outcome ({failing} fail alike)"]


NEEDS = ("build",)
SMOKE = Check("smoke", 15, 60, smoke, NEEDS)
EXAMPLES = Check("examples-bitwise", 35, 100, examples, NEEDS)
CHECKS = (
    Check("hugging-face-bitwise", 25, 75, hugging_face, NEEDS),
    Check("overhead", 40, 120, overhead, NEEDS),
    Check("snapshot-cost", 20, 60, snapshot_cost, NEEDS),
    Check("call-costs", 10, 50, calls, NEEDS),
    Check("operators", 30, 75, operators, NEEDS),
)
