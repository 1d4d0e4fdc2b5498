"""Results of a matrix as a page in Markdown, for a repository: no number of it is typed."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from pyft_lab.command import figures, fit, page, report
from pyft_lab.matrix.runner import Result
from pyft_lab.statistics import Ratio

Row = tuple[str, ...]


def write(results: list[Result], name: str) -> str:
    """Return the page of a matrix that has this name."""
    parts = [
        f"# {name}: what was measured",
        "This page is made by `pyft lab report --markdown`. Pyft's page of the lab says how runs are\n"
        "made, judged and compared, and what counts as the cost of a fault.",
        f"    pyft lab run {name}.toml",
        "\n".join([f"- {line}" for line in [*page.machine(), page.loads(results), done(results)]]),
        *section("Verdicts", ("mechanism", "fault", "runs", "faults", "good"), verdicts(results)),
        *section("What a fault costs", COST, costs(results)),
        *section("What steps and runs cost", RATIOS, ratios(results)),
        *section("What the time goes to, mean in seconds", ("mechanism", "phases"), spent(results)),
        *against_model(results),
        "Intervals are of 95 %. Those of ratios are over pairs: runs with the same faults, one after\n"
        "the other. Those of the model are over means of runs.",
    ]
    return "\n\n".join(parts) + "\n"


COST = ("mechanism", "fault", "seconds, median (min to max, n)", "by that of the base")
RATIOS = ("mechanism", "time of the steps by the reference's", "goodput of the run by the base's")


def section(title: str, headings: Row, rows: Iterable[Row]) -> list[str]:
    """Return heading and table; nothing where there are no rows."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    head = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return [f"## {title}", "\n".join([*head, *lines])] if lines else []


def done(results: list[Result]) -> str:
    """Return how many runs there are, and of how many nothing was asked."""
    run = [r for r in results if r.data["claimed"]]
    plain = sum(r.cell == r.cell.reference for r in run)
    left = len(results) - len(run)
    more = f"; {left} are not claimed by their mechanism, and not run" if left else ""
    return f"{len(run)} runs, of which {plain} are references without faults{more}."


def verdicts(results: list[Result]) -> Iterable[Row]:
    """Yield for each mechanism and kind how many runs and faults there were, and good runs."""
    called = report.labels(results)
    runs: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for result in results:
        name = called[result.cell.substrate, result.cell.mechanism_name]
        kinds = [fault.kind for fault in result.cell.faults]
        for kind in set(kinds) if result.data["claimed"] else ():
            runs.setdefault((name, kind), []).append((kinds.count(kind), result.data["good"]))
    for (name, kind), of in sorted(runs.items()):
        faults, good = sum(count for count, _ in of), sum(is_good for _, is_good in of)
        yield f"`{name}`", f"`{kind}`", str(len(of)), str(faults), str(good)


def costs(results: list[Result]) -> Iterable[Row]:
    """Yield for each mechanism what faults cost, by kind; the ratio is over all kinds."""
    of_base = {one.mechanism: one for one in report.compare(results)}
    by_kind: dict[tuple[str, str], list[float]] = {}
    called = report.labels(results)
    for result in results:
        name = called[result.cell.substrate, result.cell.mechanism_name]
        for fault in result.data.get("faults", []) if report.lost_of(result) else []:
            if fault["lost_s"] is not None:
                by_kind.setdefault((name, fault["kind"]), []).append(fault["lost_s"])
    told: set[str] = set()
    for (name, kind), of in sorted(by_kind.items()):
        ratio = "" if name in told or name not in of_base else cost_by_base(of_base[name])
        told.add(name)
        spread = f"{median(of):.2f} ({min(of):.2f} to {max(of):.2f}, {len(of)})"
        yield f"`{name}`", f"`{kind}`", spread, ratio


def cost_by_base(one: report.Comparison) -> str:
    """Return the ratio in words; of the base itself that it is the base."""
    if one.mechanism == one.base:
        return f"the base, `{one.base}`"
    return report.in_words(one.cost, with_method=False) if one.cost else ""


def ratios(results: list[Result]) -> Iterable[Row]:
    """Yield for each mechanism what its steps, and its runs with faults, cost."""
    for one in report.compare(results):
        overhead = as_factor(one.overhead)
        goodput = "1" if one.mechanism == one.base else as_factor(one.goodput)
        if overhead or goodput:
            yield f"`{one.mechanism}`", overhead, goodput


def spent(results: list[Result]) -> Iterable[Row]:
    """Yield for each mechanism the phases of what its faults cost."""
    for name, parts in sorted(figures.mean_phases(results).items()):
        told = ", ".join(f"{phase} {seconds:.3f}" for phase, seconds in parts.items())
        if told:
            yield f"`{name}`", told


def against_model(results: list[Result]) -> list[str]:
    """Return what the model says of seeds that it has not seen; nothing where there are too few."""
    by: dict[str, list[Result]] = {}
    for result in results:
        by.setdefault(result.cell.substrate, []).append(result)
    parts: list[str] = []
    for substrate, of in sorted(by.items()):
        predictions = fit.predict(fit.samples(of))
        if predictions:
            rows = [tuple(map(str, row)) for row in map(fit.row_of, predictions)]
            title = f"The model against measurement, substrate {substrate}"
            parts += [*section(title, fit.HEADINGS, rows), fit.in_words(predictions)]
    return parts


def as_factor(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.ratio:.3g} ({ratio.low:.3g} to {ratio.high:.3g}, {ratio.pairs} pairs)"
