"""`pyft lab run` on soft GPUs: pyft and a checkpoint meet the same fault, and all bits are right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyft_lab.command import cli

MATRIX = """
[matrix]
substrate = "soft"
mechanism = ["blocking", "pyft-snapshot"]
fault = ["gpu-lost"]
moment = ["backward"]
steps = 8
interval = [3]
"""


@pytest.mark.long
def test_the_same_fault_for_a_checkpoint_and_for_pyft(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.toml"
    path.write_text(MATRIX)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(path), "--out", str(tmp_path / "out")])
    out = capsys.readouterr().out
    assert ended.value.code == 0, out
    results = {}
    for cell in tmp_path.glob("out/cells/*/cell.json"):
        name = json.loads(cell.read_text())["mechanism"]
        results[name] = json.loads(cell.with_name("result.json").read_text())
    assert {name: r["attempts"] for name, r in results.items()} == {
        "none": 1, "blocking": 2, "pyft-snapshot": 1,
    }  # fmt: skip
    assert all(r["good"] for r in results.values()), results
    assert results["blocking"]["replayed"] > 0
    assert results["pyft-snapshot"]["replayed"] == 0  # the script has only waited
    (fault,) = results["pyft-snapshot"]["faults"]
    assert fault["lost_s"] > 0
    assert fault["phases_s"]["restore"] > 0
