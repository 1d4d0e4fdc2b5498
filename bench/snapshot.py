"""What protection costs while nothing fails: steps with and without snapshots, in turns.

    python bench/snapshot.py [--steps 30] [--pairs 5] [--ranks 4]

With `--ranks` instead what replicas save by sharing their snapshots, on the GPT.

The ratio has a target for each of the four examples. Beside it stands that of the processor time of
client and server, which depends less on what else the machine does; for how long a snapshot keeps the
program's commands waiting; what it hashes and copies; and the share of each class of memory.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from figures import Figure, exit_code, print_table
from programs import MODELS, BenchError
from training import Training, train

TARGET = 1.02
MB = 1e6


def run(script: str, steps: int, protect: str) -> Training:
    done = train(
        "proxied",
        ["--steps", str(steps)],
        ranks=0,
        script=script,
        options=["--protect", protect],
        processor_time=True,
    )
    if done.exit_code:
        raise BenchError(f"[{script}] with --protect {protect} ended with [{done.exit_code}]")
    return done


def store_of(run: Training) -> dict[str, int]:
    """Return the figures of the store of the only channel."""
    channels = run.report["channels"]
    return channels[0]["store"]


def shares(store: dict[str, int]) -> str:
    """Return what the first cut protects, by class, in percent."""
    classes = ("block_bytes", "mapped_bytes", "hidden_bytes")
    total = sum(store[name] for name in classes) or 1
    words = ("blocks", "other memory", "variables")
    return ", ".join(
        f"{word} {100 * store[name] / total:.1f} %"
        for word, name in zip(words, classes, strict=True)
    )


def per_step(name: str, store: dict[str, int], steps: int) -> list[Figure]:
    """Return what a step hashes and copies, and how often a cut is snapshotted."""
    snapshots = max(store["snapshots"], 1)

    def ms(nanoseconds: int) -> list[float]:
        return [nanoseconds / snapshots / 1e6]

    return [
        Figure(f"{name}: copied per step", [store["copied_bytes"] / steps / MB], "MB"),
        Figure(f"{name}: of that behind the cut", [store["later_bytes"] / steps / MB], "MB"),
        Figure(f"{name}: hashed per step", [store["hashed_bytes"] / steps / MB], "MB"),
        Figure(f"{name}: live at a cut", [store["live_bytes"] / MB], "MB"),
        Figure(f"{name}: work of a snapshot", ms(store["cut_ns"] - store["drain_ns"]), "ms"),
        Figure(f"{name}: a snapshot keeps commands waiting", ms(store["kept_ns"]), "ms"),
        Figure(f"{name}: hashing, at the cut", ms(store["hash_ns"]), "ms"),
        Figure(f"{name}: copying, at the cut", ms(store["copy_ns"]), "ms"),
        Figure(f"{name}: copying behind it", ms(store["later_ns"]), "ms"),
        Figure(f"{name}: cuts for one snapshot", [store["cut_every"]], digits=0),
        Figure(f"{name}: cancelled cuts", [store["cancelled"]], digits=0),
    ]


def snapshot_cost(steps: int, pairs: int) -> list[Figure]:
    """Compare each example with and without snapshots; losses and parameters must be equal."""
    figures: list[Figure] = []
    for name, script in MODELS.items():
        ratios, processor = [], []
        for pair in range(pairs):
            order = ("none", "snapshot") if pair % 2 == 0 else ("snapshot", "none")
            done = {protect: run(script, steps, protect) for protect in order}
            bare, kept = done["none"], done["snapshot"]
            if bare.losses != kept.losses or bare.parameters != kept.parameters:
                raise BenchError(f"[{script}] computes something else when it is protected")
            times = [statistics.median(one.step_seconds()) for one in (kept, bare)]
            ratios.append(times[0] / times[1])
            processor.append(kept.step_processor_seconds() / bare.step_processor_seconds())
        store = store_of(kept)
        figures.append(
            Figure(f"{name}: step with snapshots / without", ratios, digits=3, at_most=TARGET)
        )
        figures.append(Figure(f"{name}: the same, processor time", processor, digits=3))
        figures += per_step(name, store, steps)
        print(f"  {name}: {shares(store)}", flush=True)
    return figures


# What replicas have in common: kept by each, kept once in a store, kept in their GPUs.
WAYS = {
    "not shared": ("snapshot", {"PYFT_SHARE_SNAPSHOTS": "0"}),
    "shared": ("snapshot", {}),
    "jit": ("jit", {}),
}


def sharing(ranks: int, steps: int, pairs: int) -> list[Figure]:
    """Compare snapshots that replicas share, or do not make, with snapshots that each makes alone."""
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    copied: dict[str, list[float]] = {way: [] for way in WAYS}
    kept: dict[str, list[float]] = {way: [] for way in WAYS}
    for pair in range(pairs):
        done = {}
        for way in list(WAYS) if pair % 2 else reversed(WAYS):
            protect, settings = WAYS[way]
            run = train(
                "proxied",
                ["--steps", str(steps)],
                ranks=ranks,
                options=["--protect", protect],
                environment=settings | {"PYFT_CUT_EVERY": "1"},
            )
            if run.exit_code:
                raise BenchError(f"[{ranks}] ranks ended with [{run.exit_code}]")
            stores = [channel["store"] for channel in run.report["channels"]]
            copied[way] += [s["copied_bytes"] / max(s["snapshots"], 1) / MB for s in stores]
            kept[way] += [s["heap_used"] / MB for s in stores]
            done[way] = run
        if len({(tuple(one.losses), str(one.parameters)) for one in done.values()}) > 1:
            raise BenchError("how snapshots are shared changes the results")
        times = {way: statistics.median(one.step_seconds()) for way, one in done.items()}
        for way in WAYS:
            ratios[way].append(times[way] / times["not shared"])
    return [
        *(
            Figure(f"{ranks} ranks: step, {way} / not", ratios[way], digits=3)
            for way in list(WAYS)[1:]
        ),
        *(Figure(f"copied by a rank at a cut, {way}", copied[way], "MB") for way in WAYS),
        *(Figure(f"kept by a rank in its store, {way}", kept[way], "MB") for way in WAYS),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.ranks > 1:
        figures = sharing(arguments.ranks, arguments.steps, arguments.pairs)
    else:
        figures = snapshot_cost(arguments.steps, arguments.pairs)
    print_table(figures)
    return exit_code("snapshot", figures)


if __name__ == "__main__":
    sys.exit(main())
