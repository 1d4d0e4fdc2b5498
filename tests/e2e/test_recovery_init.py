"""Deaths while a communicator is made: when the ranks have learned of each other, and not all have said that they have it."""

from __future__ import annotations

from pathlib import Path

from recovery_run import STEPS, check

DDP = (*STEPS, "--parallel", "ddp")
PROGRAM = str(Path(__file__).with_name("programs") / "recovery_cases.py")
SPLIT = (*STEPS, "--case", "two_optimizers", "--split")


def at(rank: int, place: int, call: str = "init") -> str:
    """Return the rule of flexccl/transport/fault.h that lets a rank die in ncclCommInitRank."""
    return f"kill:{place},rank={rank},on={call}"


def test_one_of_two_dies(tmp_path: Path) -> None:
    """Every rank and place, also two deaths, and who answers: tests/flexccl/init_test.cc."""
    check(tmp_path, (), ranks=2, arguments=DDP, deaths=[1], FLEXCCL_FAULT=at(1, 5))


def test_one_dies_when_it_has_it(tmp_path: Path) -> None:
    """And has written that down, but not told the agent."""
    fault = "communicator.recorded.1:1"
    check(tmp_path, (), ranks=2, arguments=DDP, deaths=[1], PYFT_FAULT=fault)


def test_two_die_while_they_divide(tmp_path: Path) -> None:
    """One when it has said that it is about to make the part, the other when it has it.

    DDP makes its buckets anew in a thread of its own, and which memory they get depends on what is
    free just then. After these deaths the ranks' may lie apart: what one has at an address is old
    in the other. Replays then say that both are right.
    """
    faults = f"{at(0, 2, 'split')};{at(1, 3, 'split')}"
    check(
        tmp_path,
        (),
        ranks=2,
        program=PROGRAM,
        arguments=SPLIT,
        deaths=[0, 1],
        compared=False,
        FLEXCCL_FAULT=faults,
    )
