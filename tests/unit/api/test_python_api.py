"""`import pyft`: jobs from Python, what they did, faults on request."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import pyft
from pyft.api import jobs
from pyft.api import run as api_run
from pyft.api.run import program
from pyft.cli import top


def write_job(folder: Path, *faults: dict[str, Any], **more: Any) -> Path:
    """Write a job's folder that has only what faults are read from."""
    folder.mkdir(parents=True, exist_ok=True)
    meta = {"job": folder.name, "state": "ended", "recovery": {"faults": list(faults)}} | more
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def fault(**more: Any) -> dict[str, Any]:
    fields = {"rank": 1, "fault": "gpu-lost", "evidence": "e", "began": 2.0, "total_ms": 500.0}
    fields |= {"gpu_from": 1, "gpu_to": 2, "outcome": "recovered", "verdict": "exact"}
    fields |= {"noticed": 2.1, "ended": 2.5, "epoch_from": 1, "epoch_to": 2, "phases_ms": {}}
    return fields | {"restored_bytes": 0, "replayed_entries": 7} | more


def test_a_command_and_its_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import os; print(os.environ['A'], os.environ['PYFT_JOB_FOLDER'])"
    result = pyft.run([sys.executable, "-c", code], env={"A": "hello"})
    assert result.exit_code == 0
    assert result.stdout == f"hello {result.folder}\n"
    assert capsys.readouterr().out == result.stdout
    assert result.faults == []
    assert "exit code 0" in result._repr_html_()
    assert "no rank has used a GPU" in result.html()
    assert not list(tmp_path.glob("pyft-run-*"))


@pytest.mark.parametrize("how", [["--report", "r.json"], ["--report=r.json"]])
def test_a_report_that_is_asked_for_is_written(
    how: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for `pyft run`, which prints its options and leaves a report."""
    script = tmp_path / "stand-in.py"
    script.write_text(
        "import sys; a = sys.argv; print(a[1:]); at = a.index('--report') + 1\n"
        "open(a[at], 'w').write('{\"log_dir\": \"/job\"}')"
    )
    monkeypatch.setattr(api_run, "program", lambda: [sys.executable, str(script)])
    options = ["--direct", *how, "--host", "h"]
    result = pyft.run(["true"], options=options, cwd=tmp_path, quiet=True)
    assert json.loads((tmp_path / "r.json").read_text()) == result.report == {"log_dir": "/job"}
    assert result.stdout.count("--report") == 1
    assert "'--direct', '--host', 'h'" in result.stdout


def test_a_notebook_shows_what_is_no_html() -> None:
    faults = [fault(outcome="given up: kernel [scale<float>] failed")]
    shown = pyft.Result(1, "", "", {"recovery": {"faults": faults}})._repr_html_()
    assert "given up: kernel [scale&lt;float&gt;] failed after 0.50 s</li>" in shown


def test_a_script_is_run_by_this_python(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.executable); sys.exit(3)")
    result = pyft.run(script, quiet=True, check=False)
    assert (result.exit_code, result.stdout) == (3, f"{sys.executable}\n")
    with pytest.raises(pyft.JobError, match=r"exit code \[3\]") as error:
        pyft.run(script, quiet=True)
    assert error.value.result.exit_code == 3


def test_what_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(pyft.PyftError, match="empty"):
        pyft.run([])
    with pytest.raises(pyft.JobError, match=r"--gpus \[soft:99\]"):
        pyft.run("true", gpus="soft:99", quiet=True)
    with pytest.raises(pyft.JobError, match="not begin there|did not happen"):
        pyft.run("true", inject="gpu-lost,rank=0", quiet=True)


def test_a_job_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    code += "; time.sleep(600)"
    with pytest.raises(pyft.JobError, match=r"after \[3 s\], and was ended") as error:
        pyft.run([sys.executable, "-c", code], timeout=3, quiet=True)
    # By the launcher, or before that had begun to take signals.
    assert error.value.result.exit_code in (143, -signal.SIGTERM)
    if (tmp_path / "pid").exists():
        assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()


class Closed(io.StringIO):
    """As the stdout of `python train.py | head`."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(text[:1])


def test_output_that_cannot_be_shown_holds_no_job_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Closed())
    lines = "for _ in range(20_000): print('a line of output')"  # more than a pipe has room for
    words = [sys.executable, "-c", lines]
    (code, stdout, _), in_time = api_run._execute(words, os.environ, None, 10.0, quiet=False)
    assert in_time
    assert (code, stdout.count("\n")) == (0, 20_000)


def test_faults_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_job(tmp_path / "job", fault(), fault(outcome="under way", total_ms=0.0))
    first, second = pyft.faults(folder)
    assert (first.kind, first.rank, first.seconds, first.gpu_to) == ("gpu-lost", 1, 0.5, 2)
    assert (second.outcome, second.seconds) == ("under way", 0.0)
    monkeypatch.setenv("PYFT_JOB_FOLDER", str(folder))
    assert pyft.faults() == [first, second]  # this process is one of the job's
    with pytest.raises(pyft.PyftError, match="is no job"):
        pyft.faults(tmp_path)


def test_without_a_job() -> None:
    assert pyft.status() == []
    with pytest.raises(pyft.PyftError, match="no job is running"):
        pyft.inject("gpu-lost", rank=0)
    with pytest.raises(pyft.PyftError, match="different ranks"):
        pyft.inject("gpu-lost,rank=1", rank=0)
    with pytest.raises(pyft.PyftError, match="does not exist"):
        pyft.inject("boom", rank=0)


def test_a_folder_names_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_job(jobs.job_folder.state_folder() / "20260101-000000-1")
    monkeypatch.setattr(jobs.job_folder, "is_live", lambda _: True)
    for target in (None, str(folder), f"{folder}/", folder.name):
        (found,) = jobs.live_jobs(target)
        assert found[0] == folder


def test_a_job_is_named_by_the_pid_of_its_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    state = jobs.job_folder.state_folder()
    write_job(state / "20260101-000000-1", fault(), agent_pid=4711)
    with pytest.raises(pyft.PyftError, match="no running job"):  # the pid may be another one's now
        pyft.faults("4711")
    monkeypatch.setattr(jobs.job_folder, "is_live", lambda _: True)
    assert len(pyft.faults("4711")) == 1


def test_what_is_said_of_jobs_that_no_order_can_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    state = jobs.job_folder.state_folder()
    monkeypatch.setattr(jobs.job_folder, "is_live", lambda _: True)
    write_job(state / "20260101-000000-1", direct=True)
    with pytest.raises(pyft.PyftError, match=r"\[20260101-000000-1\] runs with --direct"):
        jobs.only(None)
    for number in (2, 3):
        write_job(state / f"20260101-000000-{number}")
    for look, how in ((pyft.faults, "by job="), (lambda: top.job_of(None), "as in `pyft top JOB`")):
        with pytest.raises(pyft.PyftError, match=rf"-2, .*-3\] run: say which {how}"):
            look()


def test_import_is_light() -> None:
    code = (
        "import sys, pyft; assert not {'typer', 'pyft.agent', 'json'} - {'json'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
    assert set(pyft.__all__) <= set(dir(pyft))
    assert all(getattr(pyft, name) for name in pyft.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pyft.nothing


def test_the_command_of_this_python() -> None:
    done = subprocess.run([*program(), "version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{pyft.__version__}\n"
