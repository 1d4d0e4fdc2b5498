"""Commands of `pyft lab`. Each imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pyft_lab.errors import LabError, SpecError

if TYPE_CHECKING:
    from rich.console import Console

    from pyft_lab.matrix.runner import Result

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Compare ways to survive faults: published, modelled, simulated, measured.",
)


@app.callback()
def lab() -> None:
    """Say that there are sub-commands even while there is one only."""


@app.command()
def verify(
    only: Annotated[
        str, typer.Option("--only", help="Only anchors whose name begins with this.")
    ] = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="The arithmetic of every anchor.")
    ] = False,
) -> None:
    """Compute every published number again; exit 1 if one is not what the record says."""
    from pyft_lab.anchors.verify import print_table, verify_all

    checks = verify_all(only)
    if not checks:
        raise LabError(f"no anchor begins with [{only}]")
    print_table(checks, verbose)
    if not all(check.holds for check in checks):
        raise typer.Exit(1)


@app.command()
def simulate(
    gpus: Annotated[
        str, typer.Option(help="Numbers of GPUs, with commas between them; default: 1K to 100K.")
    ] = "",
    trace: Annotated[
        str, typer.Option(help="Rate of faults: llama3, rsc1, rsc2, ft-hsdp, opt175b.")
    ] = "ft-hsdp",
    days: Annotated[float, typer.Option(min=0.1, help="Length of a run.")] = 90,
    trials: Annotated[int, typer.Option(min=2, help="Runs per mechanism and scale.")] = 200,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    weibull: Annotated[
        float, typer.Option(help="Shape of times between faults; below 1 they come in clusters.")
    ] = 1.0,
    json: Annotated[Path | None, typer.Option(help="Write points and assumptions there.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw it there, as SVG and PNG.")] = None,
) -> None:
    """Goodput against scale: every mechanism meets the same faults."""
    from pyft_lab.sim import sweep

    try:
        scales = [int(word) for word in gpus.split(",")] if gpus else list(sweep.SCALES)
    except ValueError as error:
        raise SpecError(f"--gpus [{gpus}] is no list of numbers") from error
    points = sweep.sweep(scales, trace, days, trials, seed, weibull)
    sweep.report(points, trace, weibull, json)
    if figure:
        from pyft_lab.command import figures

        figures.goodput(points, figure)


@app.command()
def plan(
    gpus: Annotated[int, typer.Option(min=8, help="GPUs of the job.")],
    mtbf_h: Annotated[
        float, typer.Option("--mtbf-h", min=0, help="Hours between faults that stop the job.")
    ] = 0,
    per_1000_node_days: Annotated[
        float, typer.Option("--per-1000-node-days", min=0, help="The same as a rate of nodes.")
    ] = 0,
    trace: Annotated[str, typer.Option(help="The same as a published rate.")] = "llama3",
    days: Annotated[float, typer.Option(min=0.1)] = 90,
    step_s: Annotated[float, typer.Option("--step-s", min=0.001, help="Seconds of a step.")] = 20,
    gpu_hour: Annotated[float, typer.Option("--gpu-hour", min=0, help="Price of one.")] = 0,
    max_loss: Annotated[
        float,
        typer.Option("--max-loss", min=0, max=1, help="Chance that memory is not enough, a run."),
    ] = 1,
    mechanisms: Annotated[
        str, typer.Option(help="Those to choose from, with commas; default: what there is today.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0)] = 1,
) -> None:
    """Say which mechanism, intervals and spares to take, and what they cost."""
    from pyft_lab.models.rates import GPUS_PER_NODE
    from pyft_lab.plan import report as plan_report
    from pyft_lab.plan import search
    from pyft_lab.sim import constants
    from pyft_lab.sim.cluster import Cluster

    if mtbf_h and per_1000_node_days:
        raise SpecError("give one of [--mtbf-h] and [--per-1000-node-days]")
    rate, source = per_1000_node_days, f"{per_1000_node_days:g} per 1000 node-days, as given"
    if mtbf_h:
        rate, source = 24_000 * GPUS_PER_NODE / (mtbf_h * gpus), f"each {mtbf_h:g} h, as given"
    elif not rate:
        rate, source = constants.rate_of(trace)
    chosen = tuple(mechanisms.split(",")) if mechanisms else search.AVAILABLE
    cluster = Cluster(gpus, rate)
    job = search.Job(cluster, days, step_s, gpu_hour, max_loss, chosen, seed)
    plan_report.report(job, source)


@app.command()
def run(
    matrix: Annotated[Path, typer.Argument(help="A matrix file; quick.toml is shipped.")],
    out: Annotated[Path, typer.Option(help="Folder of results; whole cells are kept.")] = Path(
        "lab-out"
    ),
    list_: Annotated[bool, typer.Option("--list", help="Only print the cells.")] = False,
    rerun_failed: Annotated[
        bool, typer.Option("--rerun-failed", help="Run cells again that were not good.")
    ] = False,
) -> None:
    """Run mechanisms against the same faults, judge each run, compare; exit 1 if one is wrong."""
    from rich.console import Console
    from rich.progress import Progress

    from pyft_lab.matrix import runner, spec

    wanted = spec.read(matrix)
    cells = spec.expand(wanted)
    console = Console(width=None if Console().is_terminal else 160, highlight=False)
    if list_:
        for cell in cells:
            done = (runner.folder_of(out, cell) / "result.json").exists()
            console.print(f"{cell.key}  {cell.name}  {'done' if done else 'to run'}", markup=False)
        return
    results = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("cells", total=len(cells))
        for result in runner.run(out.absolute(), cells, wanted.timeout_s, rerun_failed):
            results.append(result)
            for sentence in result.dropped:
                console.print(sentence, markup=False)
            progress.update(task, advance=1, description=result.cell.name)
    finish(results, out, f"pyft lab run {matrix}", console)


@app.command()
def check(
    mechanism: Annotated[str, typer.Argument(help="FILE.py:CLASS, or the name of a shipped one.")],
    seeds: Annotated[int, typer.Option(min=1, help="Trainings whose ranks are killed.")] = 3,
) -> None:
    """Try a mechanism on the CPU: exit 1 if anything differs from an undisturbed run."""
    from tempfile import TemporaryDirectory

    from rich.console import Console

    from pyft_lab.command.report import last_words, table_of
    from pyft_lab.matrix import runner, spec

    matrix = spec.Matrix(mechanism=[mechanism], steps=20, interval=[4], seed=[*range(1, seeds + 1)])
    matrix.check()
    cells = spec.expand(matrix)
    if why := next(filter(None, map(runner.not_claimed, cells)), ""):
        raise LabError(f"[{mechanism}] is not tried: {why}")
    with TemporaryDirectory() as folder:
        results = list(runner.run(Path(folder), cells, matrix.timeout_s))
    console = Console(width=160, highlight=False)
    console.print(table_of(results))
    for sentence in last_words(results):
        console.print(sentence, markup=False)
    if not all(result.data["good"] for result in results):
        raise typer.Exit(1)


@app.command()
def report(
    out: Annotated[Path, typer.Option(help="Folder of results.")] = Path("lab-out"),
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables there as well, for a repository.")
    ] = None,
) -> None:
    """Make tables, figures and page of the cells that a folder has."""
    from rich.console import Console

    from pyft_lab.matrix import runner

    results = runner.load(out)
    if not results:
        raise LabError(f"[{out}] has no results")
    console = Console(width=160, highlight=False)
    for sentence in runner.older(out, results):
        console.print(sentence, markup=False)
    if markdown:
        from pyft_lab.command import markdown as pages

        markdown.write_text(pages.write(results, markdown.stem))
    finish(results, out, f"pyft lab report --out {out}", console)


@app.command()
def fit(
    out: Annotated[Path, typer.Option(help="Folder of results.")] = Path("lab-out"),
    predict: Annotated[
        bool, typer.Option("--predict", help="Fit on half of the seeds, predict the others.")
    ] = False,
) -> None:
    """Print constants of mechanisms from measured cells, as TOML; or the model against them."""
    from rich.console import Console

    from pyft_lab.command import fit as fitting

    results = fitting.read(out)
    if not predict:
        print(fitting.constants(results), end="")
        return
    console = Console(width=160, highlight=False)
    predictions = fitting.predict(fitting.samples(results))
    console.print(fitting.table_of(predictions))
    console.print(fitting.in_words(predictions))


def finish(results: list[Result], out: Path, command: str, console: Console) -> None:
    """Print the table, write tables, figures and page; exit 1 if a cell is wrong."""
    from pyft_lab.command import page
    from pyft_lab.command import report as reporting

    console.print(reporting.table_of(results))
    for sentence in [*reporting.last_words(results), *reporting.sentences(results)]:
        console.print(sentence, markup=False)
    written = page.write(results, out, command)
    fresh = sum(not result.cached for result in results)
    console.print(f"{fresh} cells run, {len(results) - fresh} kept; page: {written}")
    if not all(result.data["good"] for result in results):
        raise typer.Exit(1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; errors meant for the user become one sentence on stderr."""
    try:
        app(args=arguments, prog_name="pyft lab")
    except LabError as error:
        print(f"pyft lab: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # `pyft lab verify | head`
        sys.stderr.close()
        sys.exit(141)
