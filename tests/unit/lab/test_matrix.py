"""Matrices, their faults and keys; and what a supervisor does, without processes."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

import pytest

from pyft_lab.errors import SpecError
from pyft_lab.matrix import spec
from pyft_lab.matrix.supervisor import Action, Supervisor
from pyft_lab.oracles import oracle


def matrix(tmp_path: Path, text: str) -> spec.Matrix:
    path = tmp_path / "m.toml"
    path.write_text("[matrix]\n" + text)
    return spec.read(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('mechanism = ["blokcing"]', r"no mechanism \[blokcing\]: did you mean \[blocking\]"),
        ('mechanism = ["none"]\nmoment = ["noon"]', r"no moment \[noon\]"),
        (
            'mechanism = ["none"]\nsubstrate = "sift"',
            r"no substrate \[sift\]: did you mean \[soft\]",
        ),
        ('mechanism = ["none"]\nworkload = ["bart"]', r"did you mean \[bert\]"),
        ('mechanism = ["none"]\nfault = ["gpu-lost"]', r"on substrate \[cpu\] there are no GPUs"),
        ('mechanism = ["none"]\nranks = [3]', "cannot be shared out equally"),
        ('mechanism = ["x.py:Y"]', r"there is no file \[x.py\]"),
        ('mechanism = ["none"]\nfaults = 2', "faults: Extra inputs"),
        ("mechanism = [", "cannot read"),
    ],
)
def test_a_wrong_word_is_one_sentence(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        matrix(tmp_path, text)


def test_all_mechanisms_of_a_seed_meet_the_same_faults() -> None:
    cells = spec.expand(spec.read(Path("cpu.toml")))
    assert len(cells) == 22
    for seed in (1, 2):
        block = [cell for cell in cells if cell.seed == seed]
        assert block[0] == block[0].reference
        assert len({cell.faults for cell in block[1:]}) == 2
    assert len({cell.key for cell in cells}) == len(cells)
    assert [cell.key for cell in spec.expand(spec.read(Path("cpu.toml")))] == [
        cell.key for cell in cells
    ]


@pytest.mark.parametrize(
    "file",
    ["workloads/train.py", "matrix/launch.py", "matrix/storage.py", "mechanisms/checkpoints.py",
     "oracles/oracle.py"],
)  # fmt: skip
def test_a_key_follows_what_makes_and_judges_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """Or results of two versions of it would be pairs."""
    root = Path(spec.__file__).parents[1]
    copy = shutil.copytree(root, tmp_path / "pyft_lab")
    (cell, *_) = spec.expand(spec.read(Path("cpu.toml")))
    monkeypatch.setattr(spec.resources, "files", lambda _: copy)
    keys = []
    for more in ("", "# other\n"):
        (copy / file).write_text((copy / file).read_text() + more)
        spec.code_digest.cache_clear()
        keys.append(cell.key)
    spec.code_digest.cache_clear()
    assert keys[0] != keys[1]


def test_a_key_follows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or times of two machines would be pairs, in a folder that was copied."""
    (cell, *_) = spec.expand(spec.read(Path("cpu.toml")))
    keys = set()
    for hardware in (["a processor", "2"], ["a processor", "4"], ["another processor", "2"]):
        monkeypatch.setattr(spec, "hardware", lambda found=hardware: found)
        keys.add(cell.key)
    assert len(keys) == 3


def test_faults_are_not_at_checkpoints_unless_asked_for(tmp_path: Path) -> None:
    text = 'mechanism = ["none"]\nsteps = 40\ninterval = [4]\nschedule = {faults = 5, aligned = %s}'
    for aligned in (False, True):
        m = matrix(tmp_path, text % str(aligned).lower())
        steps = [f.step for seed in range(30) for f in spec.schedule(m, 2, 4, seed)]
        assert len(steps) == 150
        assert any(step % 4 == 0 for step in steps) is aligned


def test_faults_can_be_at_given_steps(tmp_path: Path) -> None:
    cells = spec.expand(spec.read(Path("ecrl-small.toml")))
    assert len(cells) == 54
    steps = {tuple(fault.step for fault in cell.faults) for cell in cells}
    assert steps == {(), (16, 48), (32, 56)}
    # ECRL's are at checkpoints; those between them make steps be done again.
    between = spec.expand(spec.read(Path("ecrl-between.toml")))
    assert {f.step % cell.interval for cell in between for f in cell.faults} == {5}
    for at in ("[[3, 3]]", "[[0]]", "[[39]]"):
        m = matrix(tmp_path, f'mechanism = ["none"]\nsteps = 40\nschedule = {{at = {at}}}')
        with pytest.raises(SpecError, match=r"must differ and lie in 1 to \[38\]"):
            spec.expand(m)


def test_every_shipped_matrix_can_be_read() -> None:
    files = (resources.files("pyft_lab") / "data" / "matrices").iterdir()
    sizes = {file.name: len(spec.expand(spec.read(Path(file.name)))) for file in files}
    assert min(sizes.values()) > 0
    assert {"quick.toml", "replay-all.toml"} <= {*sizes}


def test_the_question_of_stalls_is_asked_of_a_large_state() -> None:
    cells = spec.expand(spec.read(Path("ecrl-state.toml")))
    assert len(cells) == 33
    assert {cell.workload for cell in cells} == {"wide"}
    assert {f.step % cell.interval for cell in cells for f in cell.faults} == {3}
    assert sum(not cell.faults for cell in cells) == 3 + 15  # references, and each without faults


def test_kinds_take_turns_in_one_run_or_have_runs_of_their_own(tmp_path: Path) -> None:
    text = 'substrate = "soft"\nmechanism = ["none"]\nfault = ["sticky", "ecc"]\n'
    apart = spec.expand(matrix(tmp_path, text))
    assert [[f.kind for f in cell.faults] for cell in apart] == [[], ["sticky"], ["ecc"]]
    together = spec.expand(matrix(tmp_path, text + "schedule = {faults = 2, mixed = true}"))
    assert sorted(fault.kind for fault in together[1].faults) == ["ecc", "sticky"]
    # A server that took the place of another is not told of faults: one for each rank.
    assert sorted(fault.rank for fault in together[1].faults) == [0, 1]
    with pytest.raises(SpecError, match="each rank has one"):
        spec.expand(matrix(tmp_path, text + "schedule = {faults = 3, mixed = true}"))


def test_more_faults_than_fit_are_refused(tmp_path: Path) -> None:
    m = matrix(tmp_path, 'mechanism = ["none"]\nsteps = 8\nschedule = {faults = 3}')
    with pytest.raises(SpecError, match="too many"):
        spec.schedule(m, 2, 4, 1)


def test_a_supervisor_ends_the_others_then_launches_until_it_gives_up() -> None:
    one = Supervisor(max_restarts=1, timeout_s=10)
    assert one.next([None, None], 0) is Action.WAIT
    assert one.next([None, 0], 0) is Action.WAIT
    assert one.next([-9, None], 1) is Action.END_OTHERS
    assert one.next([-9, 1], 1) is Action.LAUNCH
    assert one.attempt == 1
    assert one.next([0, 1], 2) is Action.GIVE_UP
    assert one.next([0, 0], 2) is Action.GIVE_UP  # and stays so


def test_a_supervisor_ends_well_or_in_time() -> None:
    assert Supervisor(0, 10).next([0, 0], 5) is Action.DONE
    assert Supervisor(0, 10).next([None, 0], 11) is Action.TIMED_OUT


def test_what_goes_on_with_other_ranks_equals_a_planned_change(tmp_path: Path) -> None:
    cells = spec.expand(spec.read(Path("elastic.toml")))
    assert [(cell.ranks, cell.last_ranks) for cell in cells] == [(4, 2)] * 2
    planned = cells[0].stopped_at(15)
    assert planned.reference == planned
    assert planned == cells[1].stopped_at(15)
    assert planned.name == "planned, 4 to 2 ranks, mlp, seed 2"
    # A rank that is gone counts for the steps only that nobody has done again.
    (tmp_path / "ranks").mkdir()
    for rank, lines in enumerate((["0 0", "0 1", "1 1"], ["0 0", "0 1"])):
        rows = [json.dumps({"attempt": int(at[0]), "step": int(at[2])}) for at in lines]
        (tmp_path / "ranks" / f"{rank}.jsonl").write_text("\n".join(rows) + "\n")
    first, second = oracle.committed(tmp_path, 2)
    assert {step: line["attempt"] for step, line in first.items()} == {0: 0, 1: 1}
    assert list(second) == [0]
