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


def _module() -> Any:
    spec = importlib.util.spec_from_file_location("dmr_file", ROOT / "bench" / "dmr_file.py")
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


dmr_file = _module()


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
