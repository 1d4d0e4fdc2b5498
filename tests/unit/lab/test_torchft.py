"""torchft as it is: a replica group is killed and healed; and variants of it are caught."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pyft_lab.errors import LabError
from pyft_lab.matrix import runner, spec
from pyft_lab.matrix.spec import Fault
from pyft_lab.oracles import absence_oracle, oracle

VARIANTS = Path(__file__).with_name("torchft_variants.py")
STEP, ALONE, STEPS = 8, 4, 20  # ALONE as in the variants
KILL = Fault(STEP, 1, "backward", "rank-kill")
Run = Callable[[str], runner.Result]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """References are run once for all."""
    return tmp_path_factory.mktemp("out")


@pytest.fixture
def run(out: Path, need: Callable[..., None]) -> Run:
    there = importlib.util.find_spec("torchft") is not None
    need("torchft", there, "pip install torchft")

    def one(name: str) -> runner.Result:
        cell = spec.Cell("cpu", "mlp", f"{VARIANTS}:{name}", 2, STEPS, 5, 3, (KILL,))
        *_, result = runner.run(out, [cell.reference, cell], 240)
        return result

    return one


def said(result: runner.Result) -> str:
    """Return what to read when a run is not as it should be."""
    outputs = sorted(result.folder.glob("output*"))
    texts = [f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in outputs]
    return "\n".join([json.dumps(result.data, indent=1), *texts])


def test_one_of_two_replica_groups_is_killed_and_healed(run: Run) -> None:
    result = run("Honest")
    assert result.data["good"], said(result)
    assert result.data["attempts"] == 2
    (away,) = absence_oracle.absences(result.folder, 2, STEPS)
    assert away == (1, STEP, STEP + ALONE)
    assert result.data["left_out"] == ALONE * spec.BATCH // 2
    # The survivor goes on in its process; the other one's steps are of two.
    attempts = [{line["attempt"] for line in oracle.lines_of(result.folder, r)} for r in range(2)]
    assert attempts == [{0}, {0, 1}]
    (fault,) = result.data["faults"]
    assert 0 < fault["lost_s"] < fault["away_s"]


@pytest.mark.parametrize(
    ("name", "caught"),
    [
        ("OldOptimizer", {"losses", "state"}),
        ("OtherSamples", {"samples", "losses", "state"}),
        ("WrongMean", {"losses", "state"}),
    ],
)
def test_saboteurs_are_caught(run: Run, name: str, caught: set[str]) -> None:
    result = run(name)
    assert result.data["status"] == "done", said(result)
    found = {oracle for oracle, problems in result.data["oracle"].items() if problems}
    assert found == caught, said(result)
    assert not result.data["good"]


def test_a_package_that_is_missing_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cell = spec.Cell("cpu", "mlp", "torchft", 2, STEPS, 5, 3, (KILL,))
    with pytest.raises(LabError, match=r"mechanism \[torchft\] needs the package \[torchft\]"):
        next(runner.run(tmp_path, [cell], 1))
