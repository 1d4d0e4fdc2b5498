"""A client overwrites its memory while another rank of the job works, on the same GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from job import wait_for
from stand_ins import CLIENT, Start, faults, given

# What a client does as soon as it has a server, and the faults that this is.
ATTACKS = {
    "geometry": (
        'LOG["ring_offset"].put(log, 1 << 63); LOG["appended"].put(log, 1 << 40)',
        ["ring-broken"],
    ),
    "geometry and end": (
        'LOG["ring_offset"].put(log, 1 << 63); LOG["appended"].put(log, 1 << 40); os._exit(0)',
        [],
    ),
    "control page": ("os.pwrite(control, random.Random(1).randbytes(4096), 0)", ["ring-broken"]),
    "epoch": ('PAGE["epoch"].put(control, (1 << 32) - 1)', ["ordered"]),
    # All that the agent itself writes there, and whom it takes a client for.
    "words of the agent": (
        'PAGE["rank"].put(control, 0); PAGE["communicator"].put(control, 2 << 32); '
        'PAGE["pauses_version"].put(control, (1 << 32) - 1); '
        'PAGE["hold_until_ns"].put(control, (1 << 64) - 1)',
        [],
    ),
    # Whatever is behind the attach request, with descriptors, faster than it can be read.
    "messages": (
        'agent.setblocking(False); try_to(lambda: socket.send_fds(agent, [b"x" * 4096], [0] * 16))',
        [],
    ),
    "fault": (
        'PAGE["fault_kind"].put(control, 1); PAGE["fault_code"].put(control, 999); '
        'PAGE["sticky_error"].put(control, 999)',
        ["context-lost"],
    ),
}
MARK = "seen, deadline ="
HOSTILE = (
    CLIENT.partition(MARK)[0]
    + """
import random
log, control = fds[0], fds[1]
LOG, PAGE = layout.LOG_HEADER, CONTROL_PAGE
def try_to(attack):
    try:
        attack()
    except OSError:
        pass
while PAGE["status"].get(control) != ChannelStatus.SERVING:
    time.sleep(0.01)
open(os.environ["GIVEN"] + ".attacked", "w").close()
exec(os.environ["ATTACK"])
deadline = time.monotonic() + 60
while PAGE["status"].get(control) != ChannelStatus.SERVER_DEAD and time.monotonic() < deadline:
    if os.path.exists(os.environ["GIVEN"] + ".go"):
        os._exit(0)
    exec(os.environ["ATTACK"])
os._exit(46)
"""
)
END = 'time.sleep(float(os.environ.get("AFTER_S", "0.1")))'
WAITS = CLIENT.replace(
    END,
    """
while not os.path.exists(os.environ["GIVEN"] + ".over") and time.monotonic() < deadline + 40:
    time.sleep(0.02)
""",
)
# The hostile one is rank 1 and comes first.
SCRIPT = """
RANK=1 "$1" -c "$2" &
until [ -e "$GIVEN.attacked" ]; do sleep 0.02; done
RANK=0 "$1" -c "$3"; echo "code $?"
touch "$GIVEN.go"; wait
"""
assert MARK in CLIENT
assert END in CLIENT


@pytest.mark.parametrize("agent_dies", [False, True])
@pytest.mark.parametrize("attack", list(ATTACKS))
def test_others_go_on(start: Start, tmp_path: Path, attack: str, agent_dies: bool) -> None:
    words, found = ATTACKS[attack]
    command = ("sh", "-c", SCRIPT, "sh", sys.executable, HOSTILE, WAITS)
    ordered = attack in ("epoch", "fault")
    job = start(3 if attack == "epoch" else 2, command=command, ATTACK=words)
    wait_for(lambda: (tmp_path / "given.attacked").exists(), 30, f"an attack: {job.errors()}")
    if ordered:  # both work, and one is to get a new server
        wait_for(lambda: "status 1" in job.output(), 30, f"both ranks: {job.errors()}")
    if agent_dies:
        job.kill_agent()
    if attack == "epoch":
        assert job.ask("replace", "--rank", "0").returncode == 0
    elif attack == "fault":
        assert job.ask("inject", "--rank", "1", "--fault", "sticky").returncode == 0
    if attack == "fault":
        wait_for(lambda: "rank [1] goes on after" in job.errors(), 30, "a new server")
    elif found == ["ring-broken"]:
        wait_for(lambda: "its memory is damaged: " in job.errors(), 30, "the end of its server")
    (tmp_path / "given.over").touch()
    assert job.wait(60) == 0, job.errors()
    assert "code 0" in job.output(), job.errors()
    assert "is lost" not in job.errors()
    assert "Traceback" not in job.errors()
    assert job.errors().count("a new agent") == agent_dies
    seen = faults(tmp_path)
    assert [fault["fault"] for fault in seen][-1:] == found
    assert {fault["rank"] for fault in seen} <= {0 if attack == "epoch" else 1}
    # An agent that finds a page which says nothing may have replaced its server in between.
    assert len(seen) == len(found) or (attack == "control page" and agent_dies)
    assert ordered <= len(given(tmp_path)) - 2 <= len(seen)
    if found == ["ring-broken"]:
        assert "its memory is damaged: " in job.errors()
