"""Full initialisation, replace, remove and add of one rank, beside gloo's re-initialisation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from statistics import median

from ccl_figures import number, slope_us, spread, table
from ccl_gloo import reinit_ms
from figures import Figure, KnownMiss

ROOT = Path(__file__).resolve().parents[1]
PROCESSES = (4, 8, 16, 32, 64)
THREADS = (64, 128, 256, 512)
PASSES = 2  # flexccl and gloo take turns
GLOO_REPEATS = 4
DEADLINE_S = 120
ALL = "replace, all called"  # every survivor is told, where it is enough to tell two
TARGETS = {"replace": 5, ALL: None, "remove": 5, "add": 10}  # per cent, from 64 ranks on
KNOWN = {
    "128 ranks as threads: remove": KnownMiss(
        "to wake all of its ranks alone takes 2.8 % here", until=6
    )
}
AFTER = {
    "replace": "exchange after",
    ALL: "exchange after all",
    "remove": "exchange without",
    "add": "exchange with",
}
IDLE = {"replace": "wake neighbours", ALL: "wake all", "remove": "barrier", "add": "wake all"}

Samples = dict[str, dict[str, list[float]]]
Kept = list[Figure]


def binary() -> Path:
    """Find the program that meson has built; raises RuntimeError."""
    for found in (ROOT / "build" / "meson").rglob("ccl_repair"):
        if found.is_file():
            return found
    raise RuntimeError("[ccl_repair] is not built: run make programs")


def run_native(program: Path, kind: str, ranks: int, repeats: int) -> Samples:
    """Run ccl_repair: phase -> wall_ms, cpu_ms -> samples; raises RuntimeError."""
    command = [str(program), kind, str(ranks), str(repeats), "auto"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{command} took more than [{DEADLINE_S}] s") from None
    if done.returncode:
        raise RuntimeError(f"{command} ended with [{done.returncode}]: {done.stderr.strip()}")
    samples = json.loads(done.stdout)
    # The first round of each process also sets up its listeners.
    return {phase: {k: v[1:] for k, v in both.items()} for phase, both in samples.items()}


def merge(runs: list[Samples]) -> Samples:
    return {
        phase: {unit: [x for run in runs for x in run[phase][unit]] for unit in runs[0][phase]}
        for phase in runs[0]
    }


class Figures:
    """The figures of one number of ranks."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def wall(self, *phases: str) -> list[float]:
        """Milliseconds of phases that follow each other, round by round."""
        return [sum(x) for x in zip(*(self._samples[p]["wall_ms"] for p in phases), strict=True)]

    def _net(self, unit: str, phases: tuple[str, ...], idle: tuple[str, ...]) -> float:
        """Median of the phases above the median of phases that only wake everybody."""
        both = [sum(median(self._samples[p][unit]) for p in some) for some in (phases, idle)]
        return max(both[0] - both[1], 0.0)

    def share(self, repair: str, unit: str) -> float:
        """Per cent of a full re-init, until each rank has heard from its neighbour; waking excluded."""
        whole = self._net(unit, ("init", "first exchange"), ("barrier", "exchange"))
        part = self._net(unit, (repair, AFTER[repair]), (IDLE[repair], "exchange"))
        return 100 * part / whole if whole else float("nan")

    def share_of_calls(self, repair: str, unit: str) -> float:
        """Per cent of the initialising call alone; waking excluded."""
        whole = self._net(unit, ("init",), ("barrier",))
        return 100 * self._net(unit, (repair,), (IDLE[repair],)) / whole if whole else float("nan")

    def raw_share(self, phase: str) -> float:
        """Per cent of a full re-init, with everything that waking costs."""
        whole, part = self.wall("init", "first exchange"), self.wall(phase)
        return 100 * median(part) / median(whole)


PHASES = ("wake all", "init", "first exchange", "replace", ALL, "remove", "add")
GLOO = ("gloo re-init", "gloo lazy re-init")


def times(kind: str, all_figures: dict[int, Figures], gloo: dict[int, list[list[float]]]) -> Kept:
    """Return milliseconds by ranks and phase."""
    found = []
    for ranks, figures in all_figures.items():
        samples = {phase: figures.wall(phase) for phase in PHASES}
        samples |= dict(zip(GLOO, gloo.get(ranks, []), strict=False))
        name = f"{ranks} ranks as {kind}"
        found += [Figure(name, ms, "ms", column=phase) for phase, ms in samples.items()]
    return found


def shares(kind: str, all_figures: dict[int, Figures]) -> Kept:
    """Return per cent of a full re-init, of as many ranks as have targets."""
    found = []
    for ranks, figures in all_figures.items():
        for repair, target in TARGETS.items() if ranks >= 64 else ():
            name = f"{ranks} ranks as {kind}: {repair}"
            raw = Figure(
                name,
                [figures.raw_share(repair)],
                "%",
                at_most=target,
                column="raw",
                known_miss=KNOWN.get(name),
            )
            others = {
                "floor": figures.raw_share(IDLE[repair]),
                "net": figures.share(repair, "wall_ms"),
                "processor": figures.share(repair, "cpu_ms"),
            }
            found += [raw, *(Figure(name, [x], "%", column=c) for c, x in others.items())]
    return found


def slopes(kind: str, all_figures: dict[int, Figures]) -> Kept:
    """Return microseconds for each rank more."""
    found = []
    for repair in TARGETS:
        phases = {"all": repair, "waking everybody": IDLE[repair], "init": "init"}
        for column, phase in phases.items():
            us = slope_us([(n, median(f.wall(phase))) for n, f in all_figures.items()])
            found.append(Figure(f"ranks as {kind}: {repair}", [us], "us", column=column))
    return found


def print_times(
    kind: str, all_figures: dict[int, Figures], gloo: dict[int, list[list[float]]]
) -> None:
    print(
        f"\nRanks as {kind}: milliseconds from the release of a barrier to the last rank's return"
    )
    head = ["ranks", *PHASES]
    rows = []
    for ranks, figures in all_figures.items():
        cells = [spread(figures.wall(phase)) for phase in head[1:]]
        rows.append([str(ranks), *cells, *(spread(samples) for samples in gloo.get(ranks, []))])
    table([*head, *(GLOO if gloo else [])], rows)


def print_shares(kind: str, all_figures: dict[int, Figures]) -> None:
    print(f"\nRanks as {kind}: per cent of a full re-init (init and first exchange)")
    rows = []
    for ranks, figures in all_figures.items():
        for repair, target in TARGETS.items():
            cells = [
                figures.raw_share(repair),
                figures.raw_share(IDLE[repair]),
                figures.share(repair, "wall_ms"),
                figures.share(repair, "cpu_ms"),
                figures.share_of_calls(repair, "wall_ms"),
                figures.share_of_calls(repair, "cpu_ms"),
            ]
            verdict = "from 64 ranks on" if target else ""
            if ranks >= 64 and target:
                raw, net = ("yes" if share <= target else "NO" for share in (cells[0], cells[3]))
                verdict = f"<= {target} %: raw {raw}, net {net}"
            rows.append([str(ranks), repair, *(f"{number(s, 2)} %" for s in cells), verdict])
    head = ["ranks", "repair", "time, raw", "floor: only waking", "time, net", "processor, net"]
    head += ["calls alone: time", "calls alone: processor", "target (raw time; net processor)"]
    table(head, rows)


def print_slopes(kind: str, all_figures: dict[int, Figures]) -> None:
    for repair in TARGETS:
        points = [(n, median(f.wall(repair))) for n, f in all_figures.items()]
        idle = [(n, median(f.wall(IDLE[repair]))) for n, f in all_figures.items()]
        whole = [(n, median(f.wall("init"))) for n, f in all_figures.items()]
        print(
            f"slope, {kind}: {repair} {slope_us(points):.1f} us per rank, of which waking everybody "
            f"{slope_us(idle):.1f}; init {slope_us(whole):.1f}"
        )


def repair_tables(repeats: int) -> dict[str, Kept]:
    """Measure and print; raises RuntimeError when something fails."""
    kept: dict[str, Kept] = {"": [], "-shares": [], "-slopes": []}
    program = binary()
    runs: dict[int, list[Samples]] = {n: [] for n in PROCESSES}
    gloo: dict[int, list[list[float]]] = {n: [[], []] for n in PROCESSES}
    for _ in range(PASSES):
        for ranks in PROCESSES:
            runs[ranks].append(run_native(program, "processes", ranks, repeats))
            for lazy in (False, True):
                gloo[ranks][lazy] += reinit_ms(ranks, GLOO_REPEATS, lazy)
    processes = {ranks: Figures(merge(some)) for ranks, some in runs.items()}
    threads = {n: Figures(run_native(program, "threads", n, repeats)) for n in THREADS}
    for kind, figures, beside in (("processes", processes, gloo), ("threads", threads, {})):
        print_times(kind, figures, beside)
        print_shares(kind, figures)
        print()
        print_slopes(kind, figures)
        kept[""] += times(kind, figures, beside)
        kept["-shares"] += shares(kind, figures)
        kept["-slopes"] += slopes(kind, figures)
    print(
        "\nfull re-init: every rank has ended its communicator; from the first call of ncclCommInitRank"
        "\nuntil every rank has heard from its neighbour, ending not counted. raw: from the release of a"
        "\nbarrier until the last rank has returned from its call. replace: the two neighbours of the new"
        "\nrank are told, the others sleep on and take the step in their next operation, which net counts;"
        f"\n{ALL}: everybody is told. wake all, and the floors: the same barriers and messages with"
        "\ncalls that do nothing; the floor of remove is the barrier. net: above that, medians. O(N) in a"
        "\nreplace: nothing but one look of each rank at a shared page in its next operation. In an add or"
        "\nremove every rank is woken once, takes one step and copies the numbers of the members."
    )
    return kept
