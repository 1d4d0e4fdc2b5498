"""The page and the trace of a job: whole, offline, and nothing in it is taken for HTML."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import sample
from typer.testing import CliRunner

from pyft.cli.main import app
from pyft.report import chart, lanes, page, perfetto

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Refuses elements that are not closed, and keeps attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return reader


def job(tmp_path: Path, *faults: Any, **more: Any) -> lanes.Job:
    return lanes.read(sample.write(tmp_path / "job", *faults, **more))


def test_the_page_shows_the_job(tmp_path: Path) -> None:
    text = page.html(job(tmp_path, sample.fault(), sample.fault(outcome="x")))
    reader = read(text)
    assert "<b>&" in reader.text  # of the command: shown, not obeyed
    assert "error <999>" in reader.text
    for words in ("exit code 0", "2 of 2", "Close-up of fault 2", "GPU 1 → 2"):
        assert words in reader.text
    ranks = [value for _, name, value in reader.attributes if name == "data-rank"]
    assert ranks == ["0", "1"] * 3  # of the whole and of two close-ups
    faults = [value for _, name, value in reader.attributes if name == "data-fault"]
    assert sorted(faults) == ["1"] * 3 + ["2"] * 3


def test_the_whole_shows_a_fault_before_the_first_step(tmp_path: Path) -> None:
    """A server may die while the program loads its data."""
    early = sample.fault(began=1.0, noticed=1.1)
    early.ended = 1.5
    folder = sample.write(tmp_path / "job", early, ended=1060.0)
    lines = (folder / "timeline.jsonl").read_text().splitlines()
    late = [json.loads(line) for line in lines]
    late = [one | {"t": one["t"] + 45.0} if "t" in one else one for one in late]
    (folder / "timeline.jsonl").write_text("".join(json.dumps(one) + "\n" for one in late))
    reader = read(page.html(lanes.read(folder)))
    assert [value for _, name, value in reader.attributes if name == "data-fault"] == ["1"] * 2
    assert "left out" not in reader.text


def test_the_page_loads_nothing(tmp_path: Path) -> None:
    text = page.html(job(tmp_path, sample.fault()))
    loads = {name for _, name, _ in read(text).attributes} & {"src", "href", "srcset", "data"}
    assert not loads
    assert not re.search(r"https?:|@import|url\(|<script", text)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"direct": True, "channels": []}, "it ran with --direct"),
        ({"channels": []}, "no rank has used a GPU"),
        ({"state": "the launcher has died"}, "the launcher has died"),
        ({"recovery": None, "command": []}, "faults recovered"),
    ],
)
def test_jobs_of_which_less_is_known(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    assert words in read(page.html(job(tmp_path, **more))).text


def test_many_steps_become_boxes(tmp_path: Path) -> None:
    found = job(tmp_path, steps=1000)
    picture = ElementTree.fromstring(chart.svg(found.lanes, 0.0, 1001.0, "x"))
    boxes = [one for one in picture.iter("rect") if one.get("class") == "many"]
    assert 2 * 190 <= len(boxes) <= 2 * chart.BOXES
    assert not [one for one in picture.iter("line") if one.get("class") == "step"]
    assert all(0 < float(box.get("opacity", "0")) <= 1 for box in boxes)


def test_boxes_lie_in_the_picture(tmp_path: Path) -> None:
    found = job(tmp_path, sample.fault())
    picture = ElementTree.fromstring(chart.svg(found.lanes, 2.9, 3.2, "x"))
    boxes = [one for one in picture.iter("rect") if "phase" in (one.get("class") or "")]
    assert len(boxes) == 2
    for box in boxes:
        left, width = float(box.get("x", "")), float(box.get("width", ""))
        assert left >= chart.LEFT
        assert left + width <= chart.WIDTH - chart.RIGHT + chart.SMALLEST


def test_a_close_up_shows_the_phases_of_a_repair(tmp_path: Path) -> None:
    """Those of a repair of half a second, after a wait of 21 s."""
    fault = sample.fault()
    fault.phases_ms = {"detect": 100.0, "fence": 0.0, "wait": 21_000.0, "spawn": 300.0}
    fault.phases_ms |= {"restore": 100.0, "communicator": 50.0, "join": 25.0}
    fault.ended = 3.0 + 21.575
    text = page.html(job(tmp_path, fault))
    whole, close = (
        ElementTree.fromstring(one)
        for one in re.findall("(?s)<svg viewBox=.0 0 1060.*?</svg>", text)
    )
    assert widths(whole)["join"] < 2
    shown = widths(close)
    assert min(shown[name] for name in ("spawn", "restore", "communicator", "join")) > 35
    assert "What was before the repair is left out here." in text


def test_a_close_up_shows_a_fault_and_a_little_around_it(tmp_path: Path) -> None:
    (fault,) = job(tmp_path, sample.fault()).faults
    assert page.close_up(fault) == pytest.approx((2.95, 3.55))
    nothing = lanes.FaultSpan(1, {}, 0.0, 0.0, ())
    assert page.close_up(nothing) == (0, 0)
    hang = {"began": 1.0, "noticed": 61.0, "ended": 61.0, "phases_ms": {"detect": 60_000.0}}
    assert page.close_up(lanes.fault_span(1, hang)) == (0, 67), "it was not repaired"


def widths(picture: ElementTree.Element) -> dict[str, float]:
    """Return how wide the box of each phase is."""
    boxes = {str(one.get("class")): float(one.get("width", "0")) for one in picture.iter("rect")}
    return {name[6:]: width for name, width in boxes.items() if name.startswith("phase ")}


def test_ticks_are_round() -> None:
    assert chart.ticks(0.0, 8.0) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert chart.ticks(0.95, 1.06) == pytest.approx([0.96, 0.98, 1.0, 1.02, 1.04, 1.06])
    assert chart.clock(3723.4) == "1:02:03"
    assert chart.clock(0.25) == "0.25 s"


def check_event(event: dict[str, Any]) -> None:
    """Check what the Trace Event Format asks of an event of its kind."""
    assert isinstance(event["name"], str)
    assert all(type(event[name]) is int for name in ("pid", "tid"))
    assert isinstance(event["ts"], (int, float))
    assert event["ts"] >= 0
    if event["ph"] == "X":
        assert event["dur"] >= 0
    elif event["ph"] == "i":
        assert event["s"] in ("t", "p", "g")
    else:
        assert event["ph"] == "M"
        assert event["name"] in ("process_name", "process_sort_index", "thread_name")
        assert event["args"]


def test_the_trace_is_one_that_perfetto_reads(tmp_path: Path) -> None:
    found = json.loads(json.dumps(perfetto.trace(job(tmp_path, sample.fault())), allow_nan=False))
    events = found["traceEvents"]
    for event in events:
        check_event(event)
    spans = [event for event in events if event["ph"] == "X"]
    assert len([event for event in spans if event["tid"] == perfetto.STEPS]) == 2 * 9
    outer, *phases = [event for event in spans if event["tid"] == perfetto.RECOVERY]
    assert outer["name"] == "fault 1: gpu-lost"
    assert outer["args"]["outcome"] == "recovered"
    assert [event["name"] for event in phases] == ["detect", "restore"]
    for event in phases:  # or they would not be shown inside
        assert event["ts"] >= outer["ts"]
        assert event["ts"] + event["dur"] <= outer["ts"] + outer["dur"] + 0.2
    assert len([event for event in events if event["ph"] == "i"]) == 2 * 5


def test_the_command(tmp_path: Path) -> None:
    folder = sample.write(tmp_path / "job", sample.fault())
    trace = tmp_path / "trace.json"
    done = CliRunner().invoke(app, ["report", str(folder), "--perfetto", str(trace)])
    assert done.exit_code == 0, done.output
    assert "1 of 1 recovered" in done.output
    assert "rank 1: about 10 steps, 5 snapshots seen, 1 fault\n" in done.output
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]
    wrong = CliRunner().invoke(app, ["report", "--list", str(folder)])
    assert "--list lists all jobs" in str(wrong.exception)
    nowhere = CliRunner().invoke(app, ["report", str(folder), "--html", "/nonexistent/a.html"])
    assert "cannot be written" in str(nowhere.exception)


def test_a_command_may_have_any_bytes(tmp_path: Path) -> None:
    folder = sample.write(tmp_path / "job", sample.fault(), command=["train", "\udcff"])
    words = [sys.executable, "-m", "pyft", "report", str(folder)]
    few_letters = os.environ | {
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "ascii:strict",
        "LC_ALL": "C",
    }
    few_letters["PYTHONCOERCECLOCALE"] = "0"  # so files are ASCII as well, if nothing is said
    done = subprocess.run(words, env=few_letters, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "  train \\udcff" in done.stdout
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "train \\udcff" in page
    assert "1 → 2" in page  # a GPU and the next
