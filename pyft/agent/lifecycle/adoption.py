"""Takes over the clients and servers of the agent before (A21).

Servers that work go on working. One that was still recovering is ended and its rank begins again,
one that has died meanwhile is replaced, as ever; what was under way between servers is begun again
by those that take part. Notes are not believed where the truth can be seen: what lives, what works.
Which epoch is the newest they say: the plan's is kept before a server of it is started, and what is
in a client's control page the client may have written.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

from pyft.agent.channel import page
from pyft.agent.job.ended_clients import ids_in
from pyft.agent.job.options import JobOptions
from pyft.agent.lifecycle import pauses
from pyft.agent.lifecycle.incidents import Incidents
from pyft.agent.lifecycle.servers import Servers
from pyft.agent.members.member import Member
from pyft.agent.members.server import NAME, Server
from pyft.agent.supervisor.link import Handover, Process, SupervisorLink
from pyft.recovery import classify, events, facts
from pyft.recovery.events import Mode
from pyft.recovery.rank import Rank, State
from pyft.wire.layout import ChannelStatus


def adopt_members(
    handover: Handover, options: JobOptions, supervisor: SupervisorLink
) -> list[Member]:
    """Return the clients that were answered, with their servers; end servers of none."""
    notes = handover.notes.get("servers", {}).get("servers", {})
    ended = ids_in(handover.notes)
    members = []
    processes = {p.pid: p for p in handover.processes.values() if p.name == NAME}
    for name, note in handover.notes.items():
        if not name.startswith("client-"):
            continue
        if note["id"] in ended:  # its trace is saved
            supervisor.drop(name)
            for fd in handover.fds[name]:
                os.close(fd)
            continue
        member = Member.adopt(note, handover.fds[name], options.native_dir)
        about = notes[str(member.id)]
        process = processes.pop(about["pid"], None) or _gone(about["pid"])
        member.adopt_server(about, Server.adopt(supervisor, process, about))
        members.append(member)
    for process in processes.values():  # they stood by, or were not introduced yet
        supervisor.kill(process.pid, signal.SIGKILL)
        supervisor.forget(process.pid)
        if process.socket:
            process.socket.close()
    return sorted(members, key=lambda member: member.id)


def _gone(pid: int) -> Process:
    """Return a server of an image: it was killed, and its number may be another process's now."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    return Process(NAME, pid, ours, signal.SIGKILL)


def adopt_plan(servers: Servers, members: list[Member], handover: Handover) -> None:
    """Give the coordinator its state: what was kept, and what can be seen of the servers."""
    if "faults" in handover.notes:
        servers.incidents.restore(handover.notes["faults"])
    if "protected" in handover.notes:
        servers.protected.restore(handover.notes["protected"])
    servers.incidents.restarts = handover.restarts
    kept: dict[str, Any] = handover.notes.get("servers", {})
    if not kept:
        servers.begin()
        return
    servers.next_id, servers.job_token = kept["next_id"], kept["job_token"]
    servers.requests.restore(kept["requests"])
    facts.restore(servers.plan, kept["plan"])
    if servers.elsewhere and (told := kept.get("elsewhere")):
        servers.elsewhere.restore(told)
    for member in members:
        servers.members[member.id] = member
    servers.number()
    adopt_comparison(servers, members, handover)
    servers.pauses.adopt(handover.notes.get(pauses.NOTE), servers.control_fds())
    for member in members:
        rank = rank_of(member, servers.incidents)
        for action in servers.plan.adopt(rank):
            if isinstance(action, events.Kill):  # of a fault that is written down already
                servers.incidents.again(member.id)
                member.kill_server()
            else:
                servers.decisions.perform([action])
    servers.decisions.perform(servers.plan.adopted())
    servers.keep()
    servers.pauses.follow(servers.plan.ranks.values(), servers.control_fds)


def adopt_comparison(servers: Servers, members: list[Member], handover: Handover) -> None:
    """Compare contents as before: by digests of the same key, which is in each store."""
    stores = [member.channel.store_fd for member in members if member.channel.store_fd >= 0]
    if stores:
        servers.seed = page.read_seed(stores[0])
    compared = [] if servers.plan.rollback else members
    notes = handover.notes
    shares = (notes.get("shares"), handover.fds.get("shares", []))
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
            while servers.router.read(member, server):
                pass
    for member, server in present:
        fault = servers.incidents.open(member.id)
        told = member.channel.status()[0] == ChannelStatus.SERVER_DEAD and not fault
        if member.given_up and not member.client_gone and not told:
            servers.decisions.perform([events.GiveUp(member.id, member.given_up)])
        if server.alive or member.client_gone or member.given_up:
            continue
        if fault and _ends(fault, server) and not member.said_goodbye():
            servers.deaths.of_known_fault(member, server, facts.fault_of(fault))
        else:
            servers.deaths.exited(member)
    servers.comparison.resume()


def _ends(fault: Any, server: Server) -> bool:
    """Say whether a fault is the end of this server, and not of the one before it."""
    return fault.epoch_from == server.epoch


def _works(member: Member) -> bool:
    """Say whether a server serves, or is a first one, which has nothing to recover."""
    return page.read_one(member.channel.control_fd, "phase") == page.Phase.LIVE
