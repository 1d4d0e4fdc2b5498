"""What --dmr covers is told with what it does not, and what cannot work is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pyft.agent.job import redundancy_options
from pyft.agent.job.options import JobOptions, check_protection, replays_all
from pyft.errors import UsageError
from pyft.recovery import classify, redundancy
from pyft.wire.layout import MISMATCH_EXIT, MISMATCH_SPREAD_EXIT, FaultKind

JOB = JobOptions(
    job="job",
    log_dir=Path("/log"),
    native_dir=Path("/native"),
    devices=1,
    direct=False,
    command=("train",),
    dmr="checkpoint",
)


def counters(**values: int) -> dict[str, int]:
    return redundancy.figures(lambda name: values.get(name, 0))


def test_nothing_is_told_of_ranks_without_it() -> None:
    assert counters() == {}


def test_what_is_not_covered_is_told() -> None:
    found = counters(
        dmr_products=10,
        dmr_pairs=3,
        dmr_covered=6,
        dmr_flops=400,
        dmr_covered_flops=100,
        dmr_captured=2,
        dmr_kernels=70,
    )
    assert found["single"] == 4
    assert redundancy.sentence(found) == (
        "6 of 10 products executed twice (6 in pairs; 25 % of their operations), 0 mismatches; "
        "not covered: 4 executed once, 2 in graphs, and 70 launches of kernels"
    )


def test_why_products_were_executed_once_is_told() -> None:
    found = counters(
        dmr_products=100,
        dmr_pairs=10,
        dmr_again=30,
        dmr_covered=50,
        dmr_flops=400,
        dmr_covered_flops=200,
        dmr_expired=20,
        dmr_no_room=3,
        dmr_later=16,
        dmr_refused=1,
        dmr_period=7,
    )
    assert redundancy.sentence(found) == (
        "50 of 100 products executed twice (20 in pairs, 30 by the server; 50 % of their "
        "operations); all once in 7 steps, 0 mismatches; not covered: 50 executed once (20 with "
        "other inputs by then, 3 without memory, 16 whose turn comes later, 1 refused by the "
        "library), and 0 launches of kernels"
    )


def test_why_kernels_were_executed_once_is_told() -> None:
    found = counters(
        dmr_products=6,
        dmr_covered=6,
        dmr_kernels=9,
        dmr_kernels_again=91,
        dmr_kernels_order=4,
        dmr_kernels_host=5,
    )
    assert redundancy.sentence(found).endswith(
        "and 9 of 100 launches of kernels (4 whose order is drawn, 5 with memory of others)"
    )
    everything = counters(dmr_products=6, dmr_covered=6, dmr_kernels_again=100)
    assert redundancy.sentence(everything).endswith("and 0 of 100 launches of kernels")


def test_where_all_is_in_pairs_nothing_is_left() -> None:
    found = counters(
        dmr_products=6, dmr_pairs=3, dmr_covered=6, dmr_flops=400, dmr_covered_flops=400
    )
    assert found["single"] == 0
    assert redundancy.sentence(found).startswith(
        "6 of 6 products executed twice (6 in pairs; 100 % of their operations), 0 mismatches"
    )
    found = counters(dmr_products=3, dmr_covered=4)  # the last product is still to be counted
    assert found["single"] == 0
    assert "0 % of their operations)" in redundancy.sentence(found)


def audits(written: int, **values: int) -> dict[str, int]:
    return redundancy.audit_figures(lambda name: values.get(name, 0), written)


def test_where_all_is_audited_nothing_is_left() -> None:
    found = audits(600, audits=3, audit_entries=600)
    assert redundancy.audit_sentence(found) == (
        "600 of 600 entries audited (100 %) in 3 intervals; wrong: this rank 0 times, its auditor "
        "0 times"
    )
    assert audits(500, audit_entries=600)["unaudited_end"] == 0, "they are counted later"
    fresh = audits(0, audit_fresh=2, audit_ranks=1)
    assert redundancy.audit_sentence(fresh) == (
        "0 of 0 entries audited (0 %) in 0 intervals; wrong: this rank 1 times, its auditor "
        "0 times; not covered: 2 fresh blocks"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"direct": True}, "needs servers"),
        ({"protect": "none"}, "needs --protect snapshot"),
        ({"protect": "jit"}, "needs --protect snapshot"),
        ({"real_gpus": ("GPU-1",)}, "needs soft GPUs"),
    ],
)
def test_modes_that_cannot_work_are_refused(change: dict, says: str) -> None:
    check_protection(JOB)
    with pytest.raises(UsageError, match=says):
        check_protection(dataclasses.replace(JOB, **change))
    check_protection(dataclasses.replace(JOB, dmr="off", **change))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dmr_where": "other"}, "--dmr audit uses another one"),
        ({"dmr": "checkpoint", "dmr_where": "permuted"}, "needs --dmr idle or full"),
        ({"dmr": "audit", "dmr_where": "permuted", "spares": 1}, "use --dmr-where other, or same"),
        ({"dmr": "off", "dmr_where": "permuted"}, "add --dmr audit, idle or full"),
        ({"dmr_budget": 0.1}, "add --dmr idle"),
        ({"dmr": "idle", "dmr_budget": 0.0}, r"--dmr-budget \[0\] is no share"),
        ({"dmr": "idle", "dmr_budget": 1.5}, r"--dmr-budget \[1.5\] is no share"),
        ({"dmr": "idle", "dmr_budget": float("nan")}, "is no share"),
        ({"dmr_memory": 0.0}, r"--dmr-memory \[0\] leaves"),
        ({"dmr_memory": 0.6}, r"--dmr-memory \[0.6\] leaves"),
        ({"dmr": "checkpoint", "dmr_memory": 0.1}, "add --dmr idle or full"),
        ({"real_gpus": ("GPU-1",)}, "--dmr full needs soft GPUs"),
        ({"direct": True}, "--dmr full needs servers"),
        ({"protect": "jit"}, "--dmr full needs --protect snapshot"),
    ],
)
def test_second_executions_that_cannot_work_are_refused(change: dict, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_protection(dataclasses.replace(JOB, **({"dmr": "full"} | change)))


@pytest.mark.parametrize("dmr", ["idle", "full"])
@pytest.mark.parametrize("where", ["", "same", "permuted"])
def test_servers_are_told_what_second_executions_may_take(dmr: str, where: str) -> None:
    job = dataclasses.replace(JOB, dmr=dmr, dmr_where=where, dmr_memory=0.5)
    job = dataclasses.replace(job, dmr_budget=1.0) if dmr == "idle" else job
    check_protection(job)
    told = redundancy_options.environment(job)
    assert told.pop("PYFT_DMR") == dmr
    assert told.pop("PYFT_DMR_MEMORY") == "0.5"
    assert told.pop("PYFT_DMR_BUDGET") == ("1.0" if dmr == "idle" else "0.03")
    assert told.pop("PYFT_DMR_WHERE") == (where or "permuted")
    assert not told
    assert redundancy_options.environment(JOB) == {"PYFT_DMR": "checkpoint"}


def test_ranks_go_back_together_unless_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYFT_REPLAY", raising=False)
    assert replays_all(JOB)
    assert not replays_all(dataclasses.replace(JOB, dmr="off"))
    monkeypatch.setenv("PYFT_REPLAY", "one")
    assert not replays_all(JOB)


def test_the_option_reaches_the_agent() -> None:
    arguments = [*JOB.to_arguments()[: JOB.to_arguments().index("--")], "--supervisor-fd", "3"]
    options, _ = JobOptions.from_arguments([*arguments, "--", "train"])
    assert options == JOB


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [
        (MISMATCH_EXIT, FaultKind.MISMATCH, "mismatch"),
        (MISMATCH_SPREAD_EXIT, FaultKind.MISMATCH_SPREAD, "mismatch-spread"),
    ],
)
def test_a_mismatch_has_a_class(code: int, kind: FaultKind, name: str) -> None:
    fault = classify.of_exit(code << 8, kind, 0, "behind cut [3], product ...", 77, 3)
    assert fault.name == name
    assert fault.evidence == f"exit [{code}], behind cut [3], product ..."
    assert fault.row.do is (classify.Do.SAME if code == MISMATCH_EXIT else classify.Do.GIVE_UP)
