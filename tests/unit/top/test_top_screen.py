"""What `pyft top` shows of a job, and what its keys do."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pyft.cli.main import app
from pyft.errors import PyftError
from pyft.report.lanes import Seen
from pyft.top import rates, screen
from pyft.top.dialog import Dialog
from pyft.top.look import Row, View

FAULT = {"rank": 1, "fault": "gpu-lost", "noticed": 3.1, "gpu_from": 1, "gpu_to": 2}
FAULT |= {"ended": 3.5, "total_ms": 487.0, "outcome": "recovered", "verdict": "exact"}


def row(**more: Any) -> Row:
    pace = rates.Pace(steps=12, rate=2.5, snapshot=11, interval=1, gpu=2)
    fields = {"rank": 1, "pid": 77, "device": 1, "pace": pace, "status": "serving"}
    fields |= {"protection": "last snapshot at cut 11", "heartbeat_age": 0.1, "lag": 0}
    return Row(**(fields | more))


def shown(*rows: Row, faults: list[dict[str, Any]] | None = None, keys: str = "") -> str:
    found = {"faults": faults or [], "recovered": len(faults or []), "goodput": 0.97}
    meta = {"job": "j1", "gpus": "soft:2", "spares": 1, "command": ["train.py"], "recovery": found}
    dialog = Dialog(lambda *_, **__: None)
    for key in keys:
        dialog.press(key)
    out = io.StringIO()
    Console(file=out, width=110).print(screen.page(View(meta, "running", 65.0, rows), dialog))
    return out.getvalue()


def test_a_job_with_a_fault() -> None:
    text = shown(row(), row(rank=0, protection="NONE at present: why"), faults=[FAULT])
    for words in (
        "job j1  running 65 s  soft:2 and 1 spare, 1 left",
        "protected 1 of 2 ranks   steps/s 2.50   recovered 1 of 1 faults   at work 97.00%",
        "NONE at present: why",
        "1 > 2",
        "487 ms",
        "recovered, exact",
        "q quit",
    ):
        assert words in text, text
    assert "no faults so far" in shown(row())
    assert "no rank uses a GPU yet" in shown()


@pytest.mark.parametrize(
    ("steps", "now", "rate"),
    [
        ([(0.0, 0), (10.0, 20)], 10.0, 2.0),
        ([(0.0, 0), (10.0, 20)], 20.0, 1.0),  # it stands still
        ([(0.0, 0), (10.0, 20)], 50.0, 0.0),
        ([(0.0, 0), (90.0, 180), (100.0, 200)], 100.0, 1.0 * 200 / 20),
        ([], 5.0, 0.0),
    ],
)
def test_rates(steps: list[tuple[float, int]], now: float, rate: float) -> None:
    assert rates.pace(Seen(steps=steps), now).rate == pytest.approx(rate)


def test_snapshots_are_so_many_cuts_apart() -> None:
    seen = Seen(steps=[(1.0, 9)], snapshots=[(0.1, 2), (0.2, 4), (0.3, 10)], gpus=[(0.0, 3)])
    assert rates.pace(seen, 1.0) == rates.Pace(9, 0.0, 10, 2, 3)
    assert rates.spread([]) == "-"
    assert rates.spread([1.0, 2.0]) == "1.00 to 2.00"


@pytest.mark.parametrize(
    ("interval", "words"), [(0, " - "), (1, " every cut "), (5, " every 5 cuts ")]
)
def test_how_many_cuts_are_snapshotted(interval: int, words: str) -> None:
    pace = rates.Pace(steps=12, rate=2.5, snapshot=11, interval=interval, gpu=2)
    assert words in shown(row(pace=pace))


def dialog_after(keys: str, refusal: str = "") -> tuple[Dialog, list[tuple[str, dict[str, Any]]]]:
    given: list[tuple[str, dict[str, Any]]] = []

    def give(kind: str, **values: Any) -> None:
        if refusal:
            raise PyftError(refusal)
        given.append((kind, values))

    dialog = Dialog(give)
    for key in keys:
        dialog.press(key)
    return dialog, given


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        ("r1\ry", ("replace", {"rank": 1})),
        ("d12\x7f\rY", ("drain", {"gpu": 1})),
        ("s3\ry", ("spare", {"gpu": 3})),
        ("igpu-lost,rank=1\ry", ("inject", {"rank": 1, "fault": "gpu-lost,rank=1"})),
    ],
)
def test_an_order_is_given_after_a_yes(keys: str, order: tuple[str, dict[str, Any]]) -> None:
    dialog, given = dialog_after(keys[:-1])
    assert given == []
    assert dialog.question.endswith("? y/n ")
    dialog, given = dialog_after(keys)
    assert given == [order]
    assert "under way" in dialog.answer
    assert dialog.question == ""


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ("r1\rn", "not done"),
        ("r1\x1b", "not done"),
        ("r\r", "[] is no number"),
        ("rx\r", "[x] is no number"),
        ("iboom\r", "fault kind [boom] does not exist"),
        ("igpu-lost\r", "does not say which rank"),
        ("xyz", ""),
    ],
)
def test_nothing_is_given_otherwise(keys: str, answer: str) -> None:
    dialog, given = dialog_after(keys)
    assert given == []
    assert answer in dialog.answer
    assert not dialog.done


def test_a_refusal_is_shown() -> None:
    dialog, _ = dialog_after("d0\ry", "no spare can take over")
    assert dialog.answer == "no spare can take over"


def test_quitting() -> None:
    assert dialog_after("q")[0].done
    assert dialog_after("r\x03")[0].done
    assert not dialog_after("iq")[0].done  # a letter of the fault


def test_without_a_terminal() -> None:
    done = CliRunner().invoke(app, ["top"])
    assert "pyft status --json" in str(done.exception)


def test_a_rank_that_waits_for_a_gpu() -> None:
    waits = row(status="waiting for a GPU", lacks="`pyft spare --gpu G`")
    text = shown(waits)
    assert "waiting for a GPU" in text
    assert "`pyft spare --gpu G`" in " ".join(text.split())
    assert "last snapshot" not in text


def test_other_commands_do_not_wait_for_it() -> None:
    code = "import sys, pyft.cli.main; assert not {'rich.live', 'rich.table'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")
