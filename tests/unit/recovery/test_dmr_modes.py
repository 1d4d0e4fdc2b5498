"""What --dmr covers is told with what it does not, and what cannot work is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

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
        dmr_products=10, dmr_pairs=3, dmr_flops=400, dmr_pair_flops=100, dmr_captured=2
    )
    assert found["single"] == 4
    assert redundancy.sentence(found) == (
        "6 of 10 products in pairs (25 % of their operations), 0 mismatches; "
        "not covered: 4 executed once, 2 in graphs, and all that are no products"
    )


def test_where_all_is_in_pairs_nothing_is_left() -> None:
    found = counters(dmr_products=6, dmr_pairs=3, dmr_flops=400, dmr_pair_flops=400)
    assert found["single"] == 0
    assert redundancy.sentence(found).startswith("6 of 6 products in pairs (100 % of their")
    found = counters(dmr_products=3, dmr_pairs=2)  # the last product is still to be counted
    assert found["single"] == 0
    assert "(0 % of their operations)" in redundancy.sentence(found)


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
