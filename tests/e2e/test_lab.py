"""`pyft lab run` on soft GPUs: pyft and others meet the same fault, and all bits are right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyft_lab.command import cli
from pyft_lab.mechanisms.pyft_movable import why_no_images

MATRIX = """
[matrix]
substrate = "soft"
mechanism = ["blocking", "pyft-snapshot"]
fault = ["gpu-lost"]
moment = ["backward"]
steps = 8
interval = [3]
"""
OF_PROCESSES = """
[matrix]
substrate = "soft"
mechanism = ["pyft-snapshot", "%s"]
fault = ["%s"]
moment = ["backward"]
steps = 60
interval = [8]
schedule = { at = [[55]] }
timeout_s = 600
"""


def run(
    tmp_path: Path, matrix: str, capsys: pytest.CaptureFixture[str]
) -> tuple[str, dict[str, dict[str, Any]]]:
    """Run a matrix whose cells are all good; return what is printed, and results by mechanism."""
    path = tmp_path / "m.toml"
    path.write_text(matrix)
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(path), "--out", str(tmp_path / "out")])
    out = capsys.readouterr().out
    assert ended.value.code == 0, out
    results = {}
    for cell in tmp_path.glob("out/cells/*/cell.json"):
        name = json.loads(cell.read_text())["mechanism"]
        results[name] = json.loads(cell.with_name("result.json").read_text())
    assert all(r["good"] for r in results.values()), results
    return out, results


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kind"),
    [("pyft-movable", "rank-kill"), ("pyft-flush", "job-kill"), ("pyft-parity", "disk-lost")],
)
def test_processes_die_and_pyft_has_images(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    need: Callable[[str, bool, str], None],
    name: str,
    kind: str,
) -> None:
    need("nodes", not why_no_images(), why_no_images())
    out, results = run(tmp_path, OF_PROCESSES % (name, kind), capsys)
    assert f"does not claim to survive {kind}" in out  # pyft-snapshot
    assert {*results} == {"none", name}
    assert results[name]["attempts"] == 1  # it did not begin anew
    assert results[name]["replayed"] > 0  # it went back, or on from a line


@pytest.mark.long
def test_an_audit_undoes_what_no_error_tells_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = OF_PROCESSES.replace('"pyft-snapshot", ', "").replace("[[55]]", "[[25]]")
    _, results = run(tmp_path, matrix % ("pyft-dmr", "bitflip"), capsys)
    (fault,) = results["pyft-dmr"]["faults"]
    assert fault["phases_s"]["replay"] > 0


@pytest.mark.long
def test_the_same_fault_for_a_checkpoint_and_for_pyft(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, results = run(tmp_path, MATRIX, capsys)
    assert {name: r["attempts"] for name, r in results.items()} == {
        "none": 1, "blocking": 2, "pyft-snapshot": 1,
    }  # fmt: skip
    assert results["blocking"]["replayed"] > 0
    assert results["pyft-snapshot"]["replayed"] == 0  # the script has only waited
    (fault,) = results["pyft-snapshot"]["faults"]
    assert fault["lost_s"] > 0
    assert fault["phases_s"]["restore"] > 0
