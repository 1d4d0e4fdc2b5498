"""What Slurm's variables say of a host, and what `pyft doctor` finds missing in them."""

from __future__ import annotations

import pytest

from pyft.cli import doctor, several
from pyft.errors import UsageError
from pyft.hosts import slurm
from pyft.hosts.head.holders import Topology

STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_PROCID": "2",
    "SLURMD_NODENAME": "node7",
    "SLURM_TOPOLOGY_ADDR": "top.r1.node7",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
}
WHOLE = STEP | {"SLURM_NO_KILL": "set", "SLURM_KILL_BAD_EXIT": "0", "PYFT_TOKEN": "x" * 16}


def test_a_task_of_a_step_is_a_place() -> None:
    assert slurm.place(STEP) == 2
    assert slurm.host(STEP) == "node7"
    assert slurm.domain(STEP) == "top.r1"


@pytest.mark.parametrize("step", [None, "4294967291", "batch", ""])
def test_what_is_no_task_of_srun_says_nothing(step: str | None) -> None:
    """The batch script has Slurm's variables, too."""
    batch = {name: value for name, value in STEP.items() if name != "SLURM_STEP_ID"}
    if step is None:
        assert slurm.place(batch) == 0
        assert not slurm.host(batch)
        assert not slurm.domain(batch)
    elif not step.isdecimal():
        assert slurm.place(batch | {"SLURM_STEP_ID": step}) == 0


def test_several_tasks_on_a_host_are_refused() -> None:
    with pytest.raises(UsageError, match="runs \\[6\\] tasks on \\[3\\] hosts"):
        slurm.place(STEP | {"SLURM_STEP_NUM_TASKS": "6"})


@pytest.mark.parametrize("number", ["", "-1", "x", "99999"])
def test_a_number_that_is_no_place_is_refused(number: str) -> None:
    with pytest.raises(UsageError, match="is no place"):
        slurm.place(STEP | {"SLURM_PROCID": number})


@pytest.mark.parametrize(
    ("address", "pattern", "domain"),
    [
        ("top.r1.node7", "switch.switch.node", "top.r1"),
        ("node7", "node", ""),
        ("top.node7", "switch.switch.node", ""),
        ("../x.node7", "switch.node", ""),
        ("", "", ""),
    ],
)
def test_the_switch_is_the_domain(address: str, pattern: str, domain: str) -> None:
    said = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    assert slurm.domain(STEP | said) == domain


def test_what_is_missing_has_a_remedy() -> None:
    assert slurm.lacks(WHOLE) == []
    for name, said in (
        ("SLURM_NO_KILL", "--no-kill"),
        ("SLURM_KILL_BAD_EXIT", "end all tasks"),
        ("PYFT_TOKEN", "PYFT_TOKEN is not set"),
    ):
        missing = slurm.lacks({key: value for key, value in WHOLE.items() if key != name})
        assert len(missing) == 1
        assert said in missing[0][0]
        assert name in missing[0][1]
    assert len(slurm.lacks(WHOLE | {"SLURM_STEP_NUM_TASKS": "9"})) == 1
    assert slurm.lacks(WHOLE | {"SLURM_NO_KILL": "1"})  # which srun refuses


def test_doctor_looks_at_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_NO_KILL"):
        monkeypatch.delenv(name, raising=False)
    assert doctor.check_slurm().status == "ok"
    for name, value in WHOLE.items():
        monkeypatch.setenv(name, value)
    assert doctor.check_slurm().text.endswith("failure domain: top.r1")
    monkeypatch.setenv("SLURM_KILL_BAD_EXIT", "1")
    found = doctor.check_slurm()
    assert (found.status, "SLURM_KILL_BAD_EXIT=0" in found.remedy) == ("warn", True)


def test_options_count_more_than_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "_check_criu", lambda: None)
    for name, value in WHOLE.items():
        monkeypatch.setenv(name, value)
    assert several.place_of("127.0.0.1:1", None, "", "10.0.0.1") == {
        "head": "127.0.0.1:1",
        "place": 2,
        "host": "node7",
        "address": "10.0.0.1",
    }
    said = several.place_of("127.0.0.1:1", 0, "h", "10.0.0.1")
    assert (said["place"], said["host"]) == (0, "h")


def test_an_address_that_only_this_host_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(several, "_check_criu", lambda: None)
    monkeypatch.setenv("PYFT_TOKEN", "x" * 16)
    with pytest.raises(UsageError, match="needs --address"):
        several.place_of("127.0.0.1:1", 0, "h", "")


def test_what_the_file_says_of_a_domain_counts_more() -> None:
    topology = Topology({"node1": "rack1"})
    topology.note("node1", "top.r9")
    topology.note("node2", "top.r2")
    assert (topology.of("node1"), topology.of("node2")) == ("rack1", "top.r2")
