"""Takes over the clients and servers of the agent before (A21).

Servers that work go on working. One that was still recovering is ended and its rank begins again, one
that has died meanwhile is replaced, as ever; what was under way between servers is begun again by
those that take part. Notes are not believed where the truth can be seen: who lives, who works. Which
epoch is the newest they say: the plan's is kept before a server of it is started, and what is in a
client's control page the client may have written.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from pyft.agent import page, pauses
from pyft.agent.incidents import Incidents
from pyft.agent.keeper_link import KeeperLink, Legacy
from pyft.agent.member import Member
from pyft.agent.options import JobOptions
from pyft.agent.protocol import ChannelStatus
from pyft.agent.server import NAME, Server
from pyft.agent.servers import Servers
from pyft.recovery import classify, events, facts
from pyft.recovery.events import Mode
from pyft.recovery.plan import Rank, State


def adopt_members(legacy: Legacy, options: JobOptions, keeper: KeeperLink) -> list[Member]:
    """Return the clients that were answered, with their servers; end servers that are nobody's."""
    notes = legacy.notes.get("servers", {}).get("servers", {})
    job = legacy.notes.get("job", {"meta": {"channels": []}})
    ended = {entry["id"] for entry in job["meta"]["channels"]}
    members = []
    processes = {p.pid: p for p in legacy.processes.values() if p.name == NAME}
    for name, note in legacy.notes.items():
        if not name.startswith("client-"):
            continue
        if note["id"] in ended:  # its trace is saved
            keeper.drop(name)
            for fd in legacy.fds[name]:
                os.close(fd)
            continue
        member = Member.adopt(note, legacy.fds[name], options.native_dir)
        about = notes[str(member.id)]
        member.adopt_server(about, Server.adopt(keeper, processes.pop(about["pid"]), about))
        members.append(member)
    for process in processes.values():  # they stood by, or were not introduced yet
        keeper.kill(process.pid, signal.SIGKILL)
        keeper.forget(process.pid)
        if process.socket:
            process.socket.close()
    return sorted(members, key=lambda member: member.id)


def adopt_plan(servers: Servers, members: list[Member], legacy: Legacy) -> None:
    """Give the coordinator its state: what was kept, and what can be seen of the servers."""
    if "faults" in legacy.notes:
        servers.incidents.restore(legacy.notes["faults"])
    servers.incidents.restarts = legacy.restarts
    kept: dict[str, Any] = legacy.notes.get("servers", {})
    if not kept:
        servers.begin()
        return
    servers.next_id, servers.job_token = kept["next_id"], kept["job_token"]
    servers.requests.restore(kept["requests"])
    facts.restore(servers.plan, kept["plan"])
    for member in members:
        servers.members[member.id] = member
    servers.number()
    adopt_comparison(servers, members, legacy)
    servers.pauses.adopt(legacy.notes.get(pauses.NOTE), servers.control_fds())
    for member in members:
        rank = rank_of(member, servers.incidents)
        for action in servers.plan.adopt(rank):
            if isinstance(action, events.Kill):  # of a fault that is written down already
                servers.incidents.again(member.id)
                member.kill_server()
            else:
                servers.perform([action])
    servers.perform(servers.plan.adopted())
    servers.keep()
    servers.pauses.follow(servers.plan.ranks.values(), servers.control_fds)


def adopt_comparison(servers: Servers, members: list[Member], legacy: Legacy) -> None:
    """Compare contents as before: by digests of the same key, which is in each store."""
    stores = [member.channel.store_fd for member in members if member.channel.store_fd >= 0]
    if stores:
        servers.seed = page.read_seed(stores[0])
    compared = [] if servers.plan.rollback else members
    notes = legacy.notes
    shares = (notes.get("shares"), legacy.fds.get("shares", []))
    servers.comparison.adopt(notes.get("comparison"), shares, compared)


def rank_of(member: Member, incidents: Incidents) -> Rank:
    """Return where a rank is. A dead server counts as alive here: its death is told next."""
    assert member.server is not None
    server, fault = member.server, incidents.open(member.id)
    rank = Rank(member.id, member.channel.rank, member.channel.device, server.gpu, server.epoch)
    judged = [i for i in incidents.of(member.id) if i is not fault or not _ends(fault, server)]
    rank.history = facts.history_of(judged)
    modes = [i.mode for i in incidents.of(member.id) if i.epoch_to == server.epoch]
    rank.mode = Mode[modes[-1].upper()] if modes else Mode.NORMAL
    if member.given_up:
        rank.state = State.GIVEN_UP
    elif not server.alive:
        rank.state = State.RUNNING
    elif fault and _ends(fault, server):
        rank.state, rank.fault = State.FENCING, facts.fault_of(fault)
    elif not _works(member):
        why = "the agent died during a recovery, which begins again"
        rank.state, rank.fault = State.FENCING, classify.of_agent("adopted", why)
    else:
        rank.state = State.RECOVERING if fault else State.RUNNING
    return rank


def see_deaths(servers: Servers, members: list[Member]) -> None:
    """Hear what was said meanwhile, and then begin to repair what has died.

    In this order: a server may have made a communicator just now that its replaced peers ask for.
    """
    present = [(member, member.server) for member in members if member.server]
    for member, server in present:
        if server.alive and not server.asked_to_end:  # because its client has gone
            servers.listen(member, server)
            while servers.read(member, server):
                pass
    for member, server in present:
        fault = servers.incidents.open(member.id)
        told = member.channel.status()[0] == ChannelStatus.SERVER_DEAD and not fault
        if member.given_up and not member.client_gone and not told:
            servers.perform([events.GiveUp(member.id, member.given_up)])
        if server.alive or member.client_gone or member.given_up:
            continue
        if fault and _ends(fault, server) and not member.said_goodbye():
            servers.incidents.fenced(member.id)  # the agent before knew of it
            servers.comparison.restarted(member)
            servers.event(events.Exited(member.id, server.epoch, facts.fault_of(fault)))
        else:
            servers.exited(member)
    servers.comparison.resume()


def _ends(fault: Any, server: Server) -> bool:
    """Say whether a fault is the end of this server, and not of the one before it."""
    return fault.epoch_from == server.epoch


def _works(member: Member) -> bool:
    """Say whether a server serves, or is a first one, which has nothing to recover."""
    return page.read(member.channel.control_fd).phase == page.Phase.LIVE
