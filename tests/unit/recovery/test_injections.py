"""What may be asked of `--inject`, and what a server is told of it."""

from __future__ import annotations

import pytest

from pyft.errors import UsageError
from pyft.recovery.inject import Injection, parse, parse_order


@pytest.mark.parametrize(
    "text",
    [
        "sticky,rank=0",
        "sticky,rank=2,step=0",
        "hang,rank=1,step=5,call=1",
        "ecc,rank=1,server=2",
        "upset,rank=0,call=3,server=3,seed=0",
        "server-kill,rank=123456789",
    ],
)
def test_a_fault_is_written_as_it_is_read(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("boom,rank=0", "fault kind [boom] does not exist: there are server-kill, sticky,"),
        ("ecc,rank", "[rank] in fault [ecc,rank] is not rank=, step=, call=, server= or seed="),
        ("ecc,when=1,rank=0", "[when=1] in fault [ecc,when=1,rank=0] is not rank="),
        ("ecc,rank=x", "[rank=x] in fault [ecc,rank=x] is no number"),
        ("ecc,rank=-1", "[rank=-1] in fault [ecc,rank=-1] is no number"),
        ("ecc,rank=1234567890", "is no number"),
        ("ecc,step=1", "fault [ecc,step=1] does not say which rank: add rank=R"),
        ("ecc,rank=0,call=0", "call= and server= count from 1"),
        ("ecc,rank=0,server=0", "call= and server= count from 1"),
        ("ecc,rank=0,seed=1", "fault [ecc,rank=0,seed=1]: seed= is for upset, rot, wrong-copy"),
    ],
)
def test_what_is_no_fault_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert why in str(caught.value)


def test_an_order_names_the_rank_by_itself() -> None:
    assert parse("hang", rank=3) == Injection("hang", rank=3)
    assert parse("hang,step=2", rank=0) == Injection("hang", rank=0, step=2)


@pytest.mark.parametrize(
    ("text", "rank"),
    [("hang,rank=3,step=2", None), ("hang,step=2", 3), ("hang,rank=3,step=2", 3)],
)
def test_an_order_may_name_the_rank_twice(text: str, rank: int | None) -> None:
    assert parse_order(text, rank) == Injection("hang", rank=3, step=2)


@pytest.mark.parametrize(
    ("text", "rank", "why"),
    [
        ("hang,rank=0", 3, "fault [hang,rank=0] and rank=[3] name different ranks"),
        ("hang,server=1", 3, "server= is for --inject"),
        ("hang,rank=3,server=2", None, "server= is for --inject"),
    ],
)
def test_an_order_is_for_one_rank_and_its_present_server(
    text: str, rank: int | None, why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_order(text, rank)
    assert why in str(caught.value)


def test_without_settings_it_happens_at_once_to_the_first_server() -> None:
    fault = parse("hang,rank=0")
    assert fault == Injection("hang", 0, step=-1, call=0, server=1, seed=-1) == Injection("hang")
    assert not fault.has_place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("server-kill,rank=0,step=0", "kill:1,cut=0"),
        ("server-kill,rank=0,step=3", "kill:1,cut=3"),
        ("server-kill,rank=0,call=1", "kill:1,cut=0"),
        ("server-kill,rank=0,step=3,call=9", "kill:9,cut=3"),
    ],
)
def test_a_server_finds_the_place_where_it_is_killed(text: str, place: str) -> None:
    fault = parse(text)
    assert fault.has_place
    assert fault.by_server
    assert fault.place() == place


def test_the_agent_looks_for_all_other_places() -> None:
    assert not parse("server-kill,rank=0").by_server, "it has none"
    assert not parse("hang,rank=0,step=3").by_server


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("server-kill,rank=0,call=5", "kill"),
        ("comm-drop,rank=0", "comm-drop"),
        ("hang,rank=0", "hang,device=2,note=7"),
        ("hang,rank=0,call=5", "hang,device=2,in=5,note=7"),
        ("upset,rank=0,seed=0", "upset,device=2,seed=0,note=7"),
    ],
)
def test_the_soft_gpu_is_told_device_launch_and_seed(text: str, words: str) -> None:
    assert parse(text).words(2, 7) == words
