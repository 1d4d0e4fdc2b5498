"""Faults that were asked for and did not happen: which ones, and why."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from job import PYFT
from stand_ins import Start, wait_serving

from pyft.errors import NOT_INJECTED, UsageError
from pyft.recovery.inject import parse
from pyft.recovery.requests import (
    MOST_REQUESTS,
    MOST_SEEN,
    MOST_TOLD,
    NUMBERS,
    Requests,
    Seen,
    beyond,
    check,
)


def account(*texts: str) -> Requests:
    requests = Requests()
    for text in texts:
        injection = parse(text)
        requests.add(injection, by_agent=not injection.by_server)
    return requests


def noted(*numbers: int) -> bytes:
    return bytes(number in numbers for number in range(NUMBERS))


def why(requests: Requests) -> list[str]:
    return [missed["why"] for missed in requests.missed()]


def test_ranks_and_servers_that_never_were() -> None:
    requests = account("server-kill,rank=5,step=1", "sticky,rank=1,step=2,server=2")
    assert why(requests)[0] == "rank [5] never had a server: no rank had one"
    requests.saw(6, Seen(0, 1, 3))
    requests.saw(7, Seen(1, 1, 3))
    assert requests.missed() == [
        {
            "fault": "server-kill,rank=5,step=1",
            "why": "rank [5] never had a server: there were ranks [0, 1]",
        },
        {
            "fault": "sticky,rank=1,step=2,server=2",
            "why": "rank [1] never had a server [2]: it had [1], one more for each fault that is repaired",
        },
    ]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (
            (1, 118, 0),
            "server [1] of rank [1] made [1] cut, and came to [118] entries after that (a cut follows "
            "each step of an optimizer of torch.optim)",
        ),
        ((9, 4, 130), "server [1] of rank [1] made [9] cuts: only [130] entries follow cut [5]"),
        ((0, 0, 0), "server [1] of rank [1] was told, and never had an entry"),
    ],
)
def test_places_that_never_came(place: tuple[int, int, int], reason: str) -> None:
    requests = account("server-kill,rank=1,step=5,call=131")
    (request,) = requests.of_server(1, 1)
    request.told.append((7, 1))
    requests.saw(7, Seen(1, 1, place[0], place))
    requests.look(7, noted(), [])
    assert why(requests) == [reason]


def test_what_is_noted_has_happened() -> None:
    requests = account("server-kill,rank=0,step=5", "bitflip,rank=0,step=1", "server-kill,rank=0")
    assert [one.number for one in requests.all] == [0, 1, 2]
    assert [one.injection.kind for one in requests.waiting()] == ["bitflip", "server-kill"]
    requests.saw(7, Seen(0, 1))
    for one in requests.all:
        one.told.append((7, 3))
    requests.look(8, noted(0, 1, 2), [3])
    assert len(requests.missed()) == 3, "that is another member"
    requests.look(7, noted(1), [2])
    assert [one["fault"].partition(",")[0] for one in requests.missed()] == ["server-kill"] * 2
    assert requests.happened() == [1]
    assert why(requests)[1] == "the agent died as it was to do that to server [1] of rank [0]"
    requests.look(7, noted(0), [3])
    assert requests.missed() == []
    assert requests.happened() == [0, 1, 2]
    assert requests.add(parse("ecc,rank=0"), by_agent=True).number == 0, "numbers are used again"


def test_a_gpu_that_was_lost_after_the_last_work_is_a_miss() -> None:
    requests = account("gpu-lost,rank=0,step=5")
    requests.saw(7, Seen(0, 1, 8))
    requests.all[0].told.append((7, 1))
    requests.look(7, noted(0), [])
    late = "it came to the GPU of server [1] of rank [0] after the last work there: no call met it"
    assert why(requests) == [late]
    requests.restore(json.loads(json.dumps(requests.note())))
    assert why(requests) == [late]
    requests.look(7, noted(0), [1])
    assert requests.missed() == []


def test_what_the_soft_gpu_never_came_to() -> None:
    requests = account("bitflip,rank=0,call=4", "hang,rank=0,step=7")
    requests.all[0].told.append((7, 1))
    requests.saw(7, Seen(0, 1, 2))
    launches, step = why(requests)
    assert launches == (
        "the GPU of server [1] of rank [0] was told, and its [4]th launch after that, or one that "
        "changes anything, did not come before the server ended"
    )
    assert step.startswith("rank [0] made [2] cuts (a cut follows each step")


def test_a_rank_that_nobody_knew_is_the_one_that_it_turns_out_to_be() -> None:
    requests = account("server-kill,rank=1,step=5", "server-kill,rank=0,step=3", "hang,rank=1")
    assert len(requests.of_server(None, 1)) == 2
    assert requests.of_server(None, 2) == []
    for member in (6, 7):
        requests.saw(member, Seen(0, 1))  # a guess
        for one in requests.of_server(None, 1):
            one.told.append((member, 1))
    requests.look(6, noted(1), [])
    requests.saw(6, Seen(0, 1, 9, (3, 1, 1)))
    requests.saw(7, Seen(1, 1, 2, (2, 8, 0)))
    requests.all[2].done = True
    (reason,) = why(requests)
    assert reason.startswith("server [1] of rank [1] made [2] cuts, and came to [8] entries after")


def test_the_next_agent_goes_on() -> None:
    requests = account("server-kill,rank=0,step=5", "ecc,rank=0,step=1", "hang,rank=1")
    requests.all[0].told.append((7, 3))
    requests.all[1].done = True
    requests.saw(7, Seen(0, 2, 4, (4, 3, 2)))
    after = Requests()
    after.restore(json.loads(json.dumps(requests.note())))
    assert after == requests


def test_orders_without_end_take_no_more_room() -> None:
    requests = account("hang,rank=3,step=9")
    for number in range(MOST_REQUESTS):
        request = requests.add(parse("slow,rank=0"), by_agent=True)
        request.tell(7, 1)
        requests.look(7, noted(request.number), [])
        assert request.done, number
    assert len(requests.all) == MOST_REQUESTS
    assert [one["fault"] for one in requests.missed()] == ["hang,rank=3,step=9"]
    refused = requests.add(parse("slow,rank=1"), by_agent=True)
    requests.drop(refused)
    assert len(requests.all) == MOST_REQUESTS, "the numbers of all others stay"
    assert len(requests.missed()) == 1


def test_servers_without_end_take_no_more_room() -> None:
    (request,) = account("slow,rank=0").all
    for epoch in range(2 * MOST_TOLD):
        request.tell(7, epoch)
    assert request.told == [(7, epoch) for epoch in range(MOST_TOLD, 2 * MOST_TOLD)]


def test_clients_without_end_take_no_more_room() -> None:
    requests = account("server-kill,rank=1,step=5", "server-kill,rank=2,server=2", "hang,rank=3")
    requests.saw(7, Seen(1, 1, 2, (2, 8, 0)))
    requests.all[0].tell(7, 1)
    requests.saw(8, Seen(2, 1, 40))  # no other one of that rank comes as far
    before = why(requests)
    for member in range(9, 9 + 2 * MOST_SEEN):
        requests.saw(member, Seen(0 if member % 2 else 2, 1, member % 40))
    assert len(requests.seen) == MOST_SEEN
    assert 8 + 2 * MOST_SEEN in requests.seen, "the last one is known"
    assert why(requests)[:2] == before[:2], "what sentences are about is kept"
    assert why(requests)[2] == "rank [3] never had a server: there were ranks [0, 1, 2]"
    again = Requests()
    again.restore(json.loads(json.dumps(requests.note())))
    assert again == requests


@pytest.mark.parametrize(
    ("texts", "protect", "reason"),
    [
        (
            ("server-kill,rank=0,step=2", "ecc,rank=0,step=3"),
            "snapshot",
            "fault [ecc,rank=0,step=3] never happens: fault [server-kill,rank=0,step=2] is the end of "
            "the same server; say server=2 for the one that replaces it",
        ),
        (("sticky,rank=0,step=2,server=2",), "none", "a rank has one server"),
        (("sticky,rank=0,step=2",), "none", "only server-kill has a step"),
        (tuple(f"slow,rank={n}" for n in range(257)), "snapshot", "[257] faults are too many"),
    ],
)
def test_what_cannot_happen_is_refused(texts: tuple[str, ...], protect: str, reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        check([parse(text) for text in texts], protect)
    assert reason in str(raised.value)


def test_what_may_happen_is_not_refused() -> None:
    texts = ("slow,rank=0", "bitflip,rank=0", "ecc,rank=0", "ecc,rank=0,server=2", "hang,rank=5")
    check([parse(text) for text in texts], "snapshot")
    check([parse("server-kill,rank=0,step=3")], "none")


@pytest.mark.parametrize("kind", ["slow", "bitflip", "upset", "stuck", "rot", "wrong-copy"])
def test_a_server_has_as_many_silent_faults_as_asked_for(kind: str) -> None:
    texts = (f"{kind},rank=0,step=1", f"{kind},rank=0,step=2", "server-kill,rank=0,step=3")
    check([parse(text) for text in texts], "snapshot")


def test_faults_of_ranks_that_there_are_not_are_told_of_once() -> None:
    requests = account("server-kill,rank=1,step=1", "ecc,rank=2", "hang,rank=7")
    said = requests.without_rank(2)
    assert said == [
        "the fault [ecc,rank=2] waits for a rank [2]: there are [2] ranks, from 0 to 1",
        "the fault [hang,rank=7] waits for a rank [7]: there are [2] ranks, from 0 to 1",
    ]
    after = Requests()
    after.restore(requests.note())
    assert after.without_rank(2) == []
    assert len(after.without_rank(1)) == 1
    assert [text.split(",")[0] for text in beyond([one.injection for one in requests.all], 2)] == [
        "the fault [ecc",
        "the fault [hang",
    ]


# ---- jobs -------------------------------------------------------------------------------------


def missed(folder: Path) -> list[dict]:
    return json.loads((folder / "r").read_text())["recovery"]["not_injected"]


def test_a_job_without_its_fault_does_not_succeed(start: Start, tmp_path: Path) -> None:
    job = start(1, "--inject", "server-kill,rank=5,step=1", "--inject", "hang,rank=0,step=3")
    assert job.wait(30) == NOT_INJECTED, job.errors()
    assert [one["fault"] for one in missed(tmp_path)] == [
        "server-kill,rank=5,step=1",
        "hang,rank=0,step=3",
    ]
    said = "pyft: the fault [server-kill,rank=5,step=1] did not happen: rank [5] never had a server"
    assert said in job.errors()
    assert job.meta()["exit_code"] == NOT_INJECTED


def test_a_rank_that_there_is_not_is_told_of_at_the_start(start: Start) -> None:
    words = ("--inject", "server-kill,rank=5,step=1", "--inject", "hang,rank=1,step=3")
    job = start(1, *words, RANK="0", WORLD_SIZE="2")
    assert job.wait(30) == NOT_INJECTED, job.errors()
    said = job.errors()
    begun = "pyft: the fault [server-kill,rank=5,step=1] is for rank [5], and --gpus has [1]"
    known = "pyft: the fault [server-kill,rank=5,step=1] waits for a rank [5]: there are [2] ranks"
    missed = "pyft: the fault [server-kill,rank=5,step=1] did not happen"
    assert 0 <= said.find(begun) < said.find(known) < said.find(missed)
    assert said.count("waits for a rank") == 1


def test_a_job_with_its_faults_ends_as_its_command(start: Start, tmp_path: Path) -> None:
    job = start(2, "--inject", "gpu-lost,rank=0", "--spares", "1")
    assert job.wait(30) == 0, job.errors()
    assert missed(tmp_path) == []
    assert "did not happen" not in job.errors()


def test_the_commands_own_failure_is_the_exit_code(start: Start, tmp_path: Path) -> None:
    job = start(1, "--inject", "hang,rank=3", command=("sh", "-c", "exit 5"))
    assert job.wait(30) == 5
    assert missed(tmp_path)[0]["why"] == "rank [3] never had a server: no rank had one"


def test_the_account_outlives_agents(start: Start, tmp_path: Path) -> None:
    options = ("--inject", "gpu-lost,rank=0", "--inject", "ecc,rank=0,server=3")
    ends_with = tmp_path / "may_end"
    job = start(2, *options, "--spares", "1", ENDS_WITH=str(ends_with))
    wait_serving(job, 2)
    job.kill_agent()
    assert job.ask("inject", "--rank", "0", "--fault", "sticky,step=9").returncode == 0
    job.kill_agent()
    ends_with.touch()
    assert job.wait(30) == NOT_INJECTED, job.errors()
    assert [(one["fault"], one["why"].partition(":")[0]) for one in missed(tmp_path)] == [
        ("ecc,rank=0,server=3", "rank [0] never had a server [3]"),
        (
            "sticky,rank=0,step=9,server=2",
            "rank [0] made [0] cuts (a cut follows each step of an optimizer of torch.optim)",
        ),
    ]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--direct", "--spares", "1"], "--spares needs servers"),
        (["--direct", "--inject", "ecc,rank=0"], "--inject needs servers"),
        (["--inject", "ecc,rank=0", "--inject", "hang,rank=0"], "say server=2"),
        (["--protect", "none", "--inject", "ecc,rank=0,step=1"], "only server-kill has a step"),
    ],
)
def test_contradictions_are_refused_at_the_start(words: list[str], text: str) -> None:
    line = [PYFT, "run", "--gpus", "soft:1", *words, "--", "true"]
    result = subprocess.run(line, capture_output=True, text=True, env=os.environ)
    assert result.returncode == 2
    assert text in result.stderr


def test_the_help_explains_which_server() -> None:
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    line = [PYFT, "run", "--help"]
    text = subprocess.run(line, capture_output=True, text=True, env=environment).stdout
    assert "server=K" in text
    assert f"[{NOT_INJECTED}]" in text


def test_a_seed_draws_the_place_of_what_computes_wrongly() -> None:
    fault = parse("upset,rank=1,step=2,call=5,seed=7")
    assert fault.words(0, 3) == "upset,device=0,in=5,seed=7,note=3"
    assert str(fault) == "upset,rank=1,step=2,call=5,seed=7"
    with pytest.raises(UsageError, match=r"seed= is for upset, rot, wrong-copy"):
        parse("ecc,rank=0,seed=7")
