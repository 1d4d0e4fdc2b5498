"""The `pyft` command for people: help, version, completion, hints, bug reports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer.main
from typer.testing import CliRunner

import pyft
from pyft.agent.job import job_folder
from pyft.api.run import program
from pyft.cli import demo, doctor, env, run, run_options
from pyft.cli.help import EXAMPLES, SECTIONS
from pyft.cli.main import app
from pyft.errors import AgentLostError, CommandError, PyftError

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def result(code: str, faults: list[dict[str, object]]) -> pyft.Result:
    return pyft.Result(0, code, "", {"recovery": {"faults": faults}})


def test_an_old_value_of_protect_still_counts_and_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    command = typer.Typer()
    seen: list[run_options.Protect] = []

    @command.command()
    def start(protect: run_options.ProtectOption = run_options.DEFAULT) -> None:
        seen.append(protect)

    old = "capture"
    found = CliRunner().invoke(command, ["--protect", old])
    said = capfd.readouterr().err
    assert (found.exit_code, seen) == (0, [run_options.Protect.snapshot]), found.output
    assert said.count(f"--protect [{old}] is called [snapshot] now") == 1
    assert CliRunner().invoke(command, ["--protect", "snapshots"]).exit_code == 2


class LostJob:
    """A launcher whose supervisor is killed, after an agent has written down what there was."""

    def __init__(self, folder: Path, error: PyftError) -> None:
        self.options, self._error = SimpleNamespace(log_dir=folder), error

    def run(self) -> int:
        meta = {"state": "the supervisor was killed", "exit_code": None, "channels": []}
        job_folder.write_meta(self.options.log_dir, meta)
        raise self._error


@pytest.mark.parametrize("error", [AgentLostError("it has ended"), CommandError("no command", 127)])
def test_a_job_that_is_lost_leaves_its_report(tmp_path: Path, error: PyftError) -> None:
    report = tmp_path / "report.json"
    report.write_text('{"state": "of the job before"}')
    with pytest.raises(type(error)):
        run._finish(LostJob(tmp_path, error), report, False)  # type: ignore[arg-type]
    found = json.loads(report.read_text())
    assert found["state"] == "the supervisor was killed"
    assert (found["exit_code"], found["log_dir"]) == (error.exit_code, str(tmp_path))


def test_a_report_of_the_job_before_goes_when_one_begins(tmp_path: Path) -> None:
    report, target = tmp_path / "report.json", tmp_path / "target.json"
    report.write_text("old")
    run._check_report(report)
    assert not report.exists()
    target.write_text("old")
    report.symlink_to(target)
    run._check_report(report)
    assert report.is_symlink()
    assert target.read_text() == ""
    run._check_report(Path("/dev/null"))


def test_each_command_stands_in_one_group() -> None:
    names = [name for group in SECTIONS.values() for name in group]
    assert sorted(names) == sorted(COMMANDS)
    text = CliRunner().invoke(app, ["--help"]).output
    assert "..." not in text.split("Run and look:")[1]  # nothing is cut off
    assert "Others:" not in text
    for title in SECTIONS:
        assert f"{title}:" in text


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name])
def test_examples_have_options_that_there_are(name: str) -> None:
    known = {option for one in COMMANDS[name].params for option in one.opts} | {"--help"}
    text = CliRunner().invoke(app, [name, "--help"]).output
    for example in EXAMPLES[name]:
        assert example in text
        ours = example.split(f"pyft {name}", 1)[1].split(" -- ")[0].split(" torchrun ")[0]
        assert set(re.findall(r"(?<!\S)--[a-z-]+", ours)) <= known, example


def test_version() -> None:
    for word in ("--version", "version"):
        assert CliRunner().invoke(app, [word]).output == f"{pyft.__version__}\n"


def test_completion() -> None:
    words = {"_PYFT_COMPLETE": "complete_bash", "COMP_WORDS": "pyft re", "COMP_CWORD": "1"}
    done = subprocess.run(program(), env=os.environ | words, capture_output=True, text=True)
    assert done.stdout.split() == ["report", "replace"]


def test_a_script_that_is_no_command(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch(mode=0o600)
    with pytest.raises(CommandError, match=rf"-- python {script} --steps 3`") as error:
        run._check_command([str(script), "--steps", "3"])
    assert error.value.exit_code == 126
    with pytest.raises(CommandError, match="there is no script") as error:
        run._check_command([str(tmp_path / "other.py")])
    assert error.value.exit_code == 127
    script.chmod(0o700)
    run._check_command([str(script)])
    run._check_command(["true", "x.py"])


SCRIPT = "no_such_script.py"


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (f"{SCRIPT} --gpus soft:1", f"--gpus soft:1 -- python {SCRIPT}"),
        (
            f"--spares 1 {SCRIPT} --steps 3 --gpus=soft:2 --movable x",
            f"--spares 1 --gpus=soft:2 --movable -- python {SCRIPT} --steps 3 x",
        ),
        (f"true {SCRIPT} --gpus soft:1", f"--gpus soft:1 -- true {SCRIPT}"),
        (f"--gpus soft:2 {SCRIPT} --spares 1", f"--gpus soft:2 --spares 1 -- python {SCRIPT}"),
    ],
)
def test_options_behind_the_command_are_put_in_front(
    typed: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYFT_GPUS", raising=False)
    said = str(CliRunner().invoke(app, ["run", *typed.split()]).exception)
    assert said == f"options of pyft come before the command: say `pyft run {line}`"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (f"--gpus soft:1 -- {SCRIPT} --spares 1", "there is no script"),
        (f"true {SCRIPT} --spares 1", "no GPU is chosen"),
        (f"true {SCRIPT} --report x", "no GPU is chosen"),
        (f"--gpus soft:1 {SCRIPT} --report x", "there is no script"),
    ],
)
def test_options_that_may_be_the_commands_own_are_left_alone(
    typed: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYFT_GPUS", raising=False)
    assert said in str(CliRunner().invoke(app, ["run", *typed.split()]).exception)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--head", "", "--place", "1", "--address", "10.0.0.2"], "--head is empty"),
        (["--place", "0"], "--place is for one host of several: add --head HOST:PORT"),
        (["--address", "10.0.0.2"], "--address is for one host of several"),
        (["--host", "h1"], "--host is for one host of several"),
        (["--direct", "--metrics-port", "9100"], "--metrics-port needs servers"),
        (["--direct", "--protect", "jit"], "--protect needs servers: leave --direct away"),
        (["--direct", "--protect", "snapshot"], "--protect needs servers"),
        (["--direct", "--standby", "all"], "--standby needs servers"),
        (["--direct", "--on-no-spare", "wait"], "--on-no-spare needs servers"),
        (["--direct", "--divergence", "report"], "--divergence needs servers"),
        (["--direct", "--unsupported", "error"], "--unsupported needs servers"),
        (["--direct", "--spans"], "--spans needs servers"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(typed: list[str], said: str) -> None:
    words = ["run", "--gpus", "soft:1", *typed, "--", SCRIPT]
    assert said in str(CliRunner().invoke(app, words).exception)


def test_an_option_may_ask_for_nothing() -> None:
    idle = ["--direct", "--protect", "none", "--standby", "none", "--metrics-port", "0"]
    for words in (["--gpus", "soft:1", *idle], ["--gpus", "soft:1"]):
        said = str(CliRunner().invoke(app, ["run", *words, "--", SCRIPT]).exception)
        assert "there is no script" in said


def test_the_usual_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYFT_JOB", raising=False)
    monkeypatch.delenv("PYFT_GPUS", raising=False)
    assert run._usual_gpus() is None
    monkeypatch.setenv("PYFT_GPUS", "soft:3")
    assert run._usual_gpus() == "soft:3"
    monkeypatch.setenv("PYFT_JOB", "20260101-000000-1")  # then they are those of that job
    assert run._usual_gpus() is None


def test_a_bug_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "CHECKS", env.CHECKS[:2])
    monkeypatch.setenv("FLEXCCL_JOB_TOKEN", "secret")
    monkeypatch.setenv("PYFT_CUT_EVERY", "3")
    text = CliRunner().invoke(app, ["env", "--bug-report"]).output
    assert f"pyft {pyft.__version__}" in text
    assert "`PYFT_CUT_EVERY=3`" in text
    assert "secret" not in text
    assert "ok: platform" in text
    assert "### The last job\n\nnone" in text


def test_the_secret_of_a_job_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYFT_TOKEN", raising=False)
    assert "\nPYFT_TOKEN=  #" in CliRunner().invoke(app, ["env"]).output
    monkeypatch.setenv("PYFT_TOKEN", "a secret of sixteen or more")
    assert "\nPYFT_TOKEN=...  #" in CliRunner().invoke(app, ["env"]).output


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("gpu-lost,rank=0", "fault [gpu-lost,rank=0] and rank=[1] name different ranks"),
        ("sticky,server=2", "fault [sticky,server=2]: server= is for --inject"),
        ("sticky,server=1", "server= is for --inject"),
    ],
)
def test_an_order_cannot_ask_for_a_fault_of_another_server(fault: str, said: str) -> None:
    words = ["inject", "--rank", "1", "--fault", fault, "--job", "none"]
    assert said in str(CliRunner().invoke(app, words).exception)
    with pytest.raises(PyftError, match=re.escape(said)):
        pyft.inject(fault, rank=1, job="none")


def test_the_demo_compares() -> None:
    recovered, lost = [{"outcome": "recovered"}], [{"outcome": "given up: why"}]
    fields = {"rank": 0, "fault": "gpu-lost", "evidence": "", "began": 1.0, "total_ms": 1.0}
    fields |= {"gpu_from": 0, "gpu_to": 1, "verdict": "exact", "replayed_entries": 1}
    text = "step=1 loss=0.5\nstep=2 loss=0.25\nparameters=ab\n"
    same = demo.compare(result(text, []), result(text, [fields | recovered[0]]))
    assert same == ["3  the same bits in both runs: 2 losses, and a hash of all parameters"]
    with pytest.raises(PyftError, match="differs"):
        demo.compare(result(text, []), result(text + "x", [fields | recovered[0]]))
    for faults in ([], [fields | lost[0]]):
        with pytest.raises(PyftError, match="was not replaced"):
            demo.compare(result(text, []), result(text, faults))
    assert demo.curve(text) == "loss 0.5000 █▁ 0.2500"


def test_the_curve_of_a_run_goes_from_its_least_to_its_largest_loss() -> None:
    losses = [0.52, 0.49, 0.47, 0.47, 0.45]
    text = "".join(f"step={number} loss={loss!r}\n" for number, loss in enumerate(losses, 1))
    assert demo.curve(text) == "loss 0.5200 █▅▃▃▁ 0.4500"
    assert demo.curve("step=1 loss=0.5\n") == "loss 0.5000 ▁ 0.5000"
    long = "".join(f"step={number} loss={1000 - number}.0\n" for number in range(1000))
    first, bars, last = demo.curve(long).removeprefix("loss ").split(" ")
    assert (first, bars[0], bars[-1], len(bars), last) == ("1000.0000", "█", "▁", 60, "1.0000")


def test_the_demo_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda _: None)
    said = str(CliRunner().invoke(app, ["demo"]).exception)
    assert said == f"pyft demo needs PyTorch: pip install torch=={doctor.TORCH_VERSION}"


def test_the_option_that_was_meant_is_named_first() -> None:
    said = CliRunner().invoke(app, ["run", "--spare", "1", "--", "true"])
    assert said.exit_code == 2
    assert "No such option: --spare: did you mean --spares or " in said.output
    assert "--" not in CliRunner().invoke(app, ["run", "--xyzzy", "true"]).output.split("xyzzy")[1]


def test_usage_errors_are_one_sentence() -> None:
    done = subprocess.run(
        [*program(), "run", "--gpus", "soft:0", "--", sys.executable],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words", ["plan --gigabytes inf", "plan --gigabytes 1e300", "top --every inf"]
)
def test_a_number_that_nothing_has_is_a_usage_error(words: str) -> None:
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2, done.exception
    assert "Invalid value for" in done.output
