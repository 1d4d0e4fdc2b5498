"""A campaign of silent faults goes on with its file, if that is of the same trials."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs" / "research" / "silent-faults.json"
OPTIONS = {"seed": 1, "model": "mixed", "dtype": "fp32", "dropout": 0.1}


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


dmr_file, dmr_table = _module("dmr_file"), _module("dmr_table")


def test_the_published_campaign_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / "campaign.json"
    path.write_bytes(PUBLISHED.read_bytes())
    found = dmr_file.load(path, OPTIONS)
    dmr_file.measured(path, found, found["launches"]["window"], 700)
    found["trials"].append({"trial": len(found["trials"]), "outcome": "masked"})
    dmr_file.save(path, found)
    again = dmr_file.load(path, OPTIONS)
    assert again == found
    before = json.loads(PUBLISHED.read_text())
    assert again["trials"][:-1] == before["trials"]
    assert again["note"] == before["note"]


def test_a_note_among_the_options_is_no_other_option(tmp_path: Path) -> None:
    path = tmp_path / "campaign.json"
    path.write_text(json.dumps({"options": OPTIONS | {"run": "two of them"}, "trials": []}))
    assert dmr_file.load(path, OPTIONS)["options"]["run"] == "two of them"


@pytest.mark.parametrize("other", [{"seed": 2}, {"dtype": "bf16"}, {"dropout": 0.0}])
def test_trials_of_other_options_are_other_trials(tmp_path: Path, other: dict[str, Any]) -> None:
    path = tmp_path / "campaign.json"
    dmr_file.save(path, dmr_file.load(path, OPTIONS))
    with pytest.raises(SystemExit, match="of other options"):
        dmr_file.load(path, OPTIONS | other)


def test_launches_are_drawn_from_as_many(tmp_path: Path) -> None:
    path = tmp_path / "campaign.json"
    found = dmr_file.load(path, OPTIONS)
    dmr_file.measured(path, found, 190, 596)
    dmr_file.measured(path, found, 190, 700)
    assert found["launches"] == {"window": 190, "trial": 700}
    with pytest.raises(SystemExit, match=r"steps of \[190\] launches, and they have \[191\]"):
        dmr_file.measured(path, found, 191, 700)


def test_each_mode_has_a_column_of_the_trials_that_it_was_shown() -> None:
    row = {"fault": "stuck", "at": 3, "outcome": "benign", "replica": False, "kernel": "k"}
    rows = [
        row | {"checkpoint": False, "full": True, "audit": True},
        row | {"checkpoint": None, "audit": True},
        row | {"checkpoint": True, "audit": False},
        row | {"outcome": "masked", "checkpoint": True, "audit": False},
    ]
    text = dmr_table.markdown({"trials": rows, "options": OPTIONS, "launches": {"window": 190}})
    (all_of_them,) = [line for line in text.splitlines() if line.startswith("| all | 0/3")]
    shares = [cell.split(" = ")[0].strip() for cell in all_of_them.split("|")[3:7]]
    assert shares == ["0/3", "1/2", "1/1", "2/3"]
    assert "* Masked, and seen by `--dmr checkpoint` all the same: 1 of 1." in text
    assert "* Masked, and seen by `--dmr audit` all the same: 0 of 1." in text
