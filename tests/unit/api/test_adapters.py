"""Callbacks of training frameworks log recoveries once, when there are new ones."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_python_api import fault, write_job

import pyft.adapters
from pyft.adapters import Recoveries
from pyft.adapters.torchtitan import log_recoveries
from pyft.agent.job import job_folder

TOTALS = {"pyft/faults": 1.0, "pyft/recovered": 1.0, "pyft/stood_still_seconds": 0.5}
MOST_LINES = 60


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the job in which this process runs."""
    monkeypatch.setenv("PYFT_JOB_FOLDER", str(tmp_path / "job"))
    return write_job(tmp_path / "job")


def happen(job: Path, *faults: dict[str, Any], earlier: int = 0, lost: float = 0.5) -> None:
    """Have faults happen; the file's time may not change in the meantime, its number does.

    `earlier`: how many there were that are not listed any more.
    """
    old = job / "meta.json"
    old.rename(job / "old.json")
    before = [{"fault": "hang", "rank": 0, "count": earlier, "own_errors": 0}] if earlier else []
    recovered = earlier + sum(one["outcome"] == "recovered" for one in faults)
    recovery = {"faults": list(faults), "earlier": before, "recovered": recovered}
    write_job(job, recovery=recovery | {"lost_seconds": lost})


def test_recoveries_are_new_once(job: Path) -> None:
    recoveries = Recoveries()
    assert recoveries.new() == []
    happen(job, fault(outcome="under way"))
    assert recoveries.new() == []
    happen(job, fault())
    assert [one.kind for one in recoveries.new()] == ["gpu-lost"]
    assert recoveries.totals() == TOTALS
    os.utime(job / "meta.json")
    assert recoveries.new() == []
    happen(job, fault(), fault(outcome="given up: why", noticed=3.1), lost=1.0)
    assert [one.outcome for one in recoveries.new()] == ["given up: why"]
    assert recoveries.totals() == {**TOTALS, "pyft/faults": 2.0, "pyft/stood_still_seconds": 1.0}


def test_a_folder_that_vanishes_raises_nothing(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recoveries = Recoveries()
    happen(job, fault())

    def gone(_: Path) -> dict[str, Any]:  # between the look at its time and the look into it
        (job / "meta.json").unlink(missing_ok=True)
        return load_meta(job)

    load_meta = job_folder.load_meta
    monkeypatch.setattr(job_folder, "load_meta", gone)
    assert recoveries.new() == []
    monkeypatch.undo()
    monkeypatch.setenv("PYFT_JOB_FOLDER", str(job))
    write_job(job, fault())
    assert [one.kind for one in recoveries.new()] == ["gpu-lost"]


def test_a_later_fault_may_end_first(job: Path) -> None:
    recoveries = Recoveries()
    happen(job, fault(rank=0, outcome="under way"), fault(rank=1))
    assert [one.rank for one in recoveries.new()] == [1]
    happen(job, fault(rank=0), fault(rank=1))
    assert [one.rank for one in recoveries.new()] == [0]


def test_ranks_that_wait_together_lose_their_time_once(job: Path) -> None:
    recoveries = Recoveries()
    happen(job, *(fault(rank=rank) for rank in range(8)), lost=0.5)
    assert len(recoveries.new()) == 8
    assert recoveries.totals()["pyft/stood_still_seconds"] == 0.5


def test_a_list_that_is_full_still_has_new_faults(job: Path) -> None:
    recoveries = Recoveries()
    first, second, third = (fault(noticed=at) for at in (1.0, 2.0, 3.0))
    happen(job, first, second)
    assert len(recoveries.new()) == 2
    happen(job, second, third, earlier=1)
    assert len(recoveries.new()) == 1
    assert recoveries.totals() == {**TOTALS, "pyft/faults": 3.0, "pyft/recovered": 3.0}


def test_outside_of_jobs_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYFT_JOB_FOLDER", raising=False)
    assert Recoveries().new() == []


def test_adapters_are_short() -> None:
    folder = Path(pyft.adapters.__file__).parent
    files = sorted(folder.glob("[a-z]*.py"))
    assert [file.stem for file in files] == ["lightning", "torchtitan", "transformers"]
    for file in files:
        assert len(file.read_text().splitlines()) < MOST_LINES, file


def test_torchtitan(job: Path) -> None:
    logged: list[tuple[dict[str, Any], int]] = []
    logger = SimpleNamespace(log=lambda metrics, step: logged.append((metrics, step)))
    trainer = SimpleNamespace(metrics_processor=SimpleNamespace(logger=logger))
    log_recoveries(trainer)
    happen(job, fault())
    trainer.metrics_processor.logger.log({"loss": 2.0}, 4)
    assert logged == [({"loss": 2.0} | TOTALS, 4)]


def test_lightning(job: Path, need: Callable[..., None]) -> None:
    need("lightning", find_spec("lightning") is not None, "lightning is not installed")
    adapter = importlib.import_module("pyft.adapters.lightning")
    logged: list[tuple[dict[str, float], int]] = []
    logger = SimpleNamespace(log_metrics=lambda metrics, step: logged.append((metrics, step)))
    trainer = SimpleNamespace(is_global_zero=True, loggers=[logger], global_step=3)
    callback = adapter.RecoveryCallback()
    callback.on_train_batch_end(trainer, None, None, None, 0)
    assert logged == []
    happen(job, fault())
    for _ in range(2):
        callback.on_train_batch_end(trainer, None, None, None, 1)
    assert logged == [(TOTALS, 3)]
    import lightning

    assert isinstance(callback, lightning.pytorch.Callback)


def test_transformers(job: Path, need: Callable[..., None], tmp_path: Path) -> None:
    need("transformers", find_spec("transformers") is not None, "transformers is not installed")
    adapter = importlib.import_module("pyft.adapters.transformers")
    import torch
    import transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            happen(job, fault())
            return {"loss": (self.weight * x).sum()}

    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=3, report_to=[], use_cpu=True, save_strategy="no"
    )
    data = [{"x": torch.ones(1)}] * 3
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data)
    trainer.add_callback(adapter.RecoveryCallback(trainer))
    trainer.train()
    (logged,) = [one for one in trainer.state.log_history if "pyft/faults" in one]
    assert {name: logged[name] for name in TOTALS} == TOTALS
