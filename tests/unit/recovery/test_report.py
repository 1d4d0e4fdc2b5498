"""The table of classes, faults on request, the report and the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyft._native.nvml import NvmlError
from pyft.agent.job import environment
from pyft.agent.lifecycle import nvml
from pyft.agent.operators import metrics
from pyft.agent.standby import standby
from pyft.errors import UsageError
from pyft.recovery import classify, inject, report
from pyft.recovery.report import Incident
from pyft.recovery.requests import Requests

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operate" / "faults.md"


def test_the_page_shows_the_table() -> None:
    assert classify.markdown() in PAGE.read_text(), "python tools/gen/gen_faults.py --root ."


def test_faults_on_request() -> None:
    text = "server-kill,rank=1,step=3,call=10,server=2"
    fault = inject.parse(text)
    assert str(fault) == text
    assert fault.place() == "kill:10,cut=3"
    assert inject.parse("ecc", rank=2).words(0, 5) == "ecc,device=0,note=5"
    for wrong in ("boom,rank=0", "ecc", "ecc,rank=x", "ecc,rank=0,when=1", "ecc,rank=0,call=0"):
        with pytest.raises(UsageError, match=r"fault"):
            inject.parse(wrong)


def test_each_fault_is_one_servers() -> None:
    requests = Requests()
    for text in ("server-kill,rank=0,step=2", "sticky,rank=0,step=1,call=9", "hang,rank=1,step=1"):
        fault = inject.parse(text)
        requests.add(fault, by_agent=not fault.by_server)
    assert requests.of_server(rank=0, server=1) == requests.all[:1]
    assert requests.all[0].injection.place() == "kill:1,cut=2"
    assert requests.of_server(rank=0, server=2) == []
    assert requests.of_server(rank=1, server=1) == []
    assert requests.all[1].injection.words(3, 1) == "error,code=700,device=3,in=9,note=1"
    assert environment.lost_gpus(1, 4, {4: "lost"}) == {"SOFTGPU_FAULT": "lost,device=1"}
    assert environment.lost_gpus(1, 5, {4: "lost"}) == {}
    assert environment.visible_devices(1, 2, 4) == [0, 2, 1, 3]


def incident(began: float, ended: float, **more: object) -> Incident:
    fields = {"rank": 0, "device": 0, "fault": "server-killed", "evidence": "", "gpu_from": 0}
    found = Incident(**(fields | {"began": began, "noticed": began} | more))
    found.finish("recovered", ended)
    return found


def test_phases_add_up() -> None:
    ns = 1_000_000_000
    phase_ns = (7 * ns, 3 * ns, 4 * ns, 6 * ns, 5 * ns, 6 * ns + ns // 2, 0, 0)
    phases = report.phases_of(1.0, 2.0, 2.5, 7.25, phase_ns)
    assert list(phases.values()) == [1000, 500, 0, 1500, 1500, 1000, 500, 250]
    waited = report.phases_of(1.0, 2.0, 2.5, 7.25, phase_ns, waited=1.25)
    assert (waited["wait"], waited["spawn"]) == (1250, 250), "a spawn is no wait for a GPU"
    assert sum(waited.values()) == sum(phases.values())
    nothing = report.phases_of(1.0, 2.0, 2.5, 7.0, (0,) * 8)
    assert sum(nothing.values()) == 6000
    assert nothing["spawn"] == 4500, "a server that reports nothing has one phase"


def test_goodput_counts_overlapping_faults_once() -> None:
    faults = [incident(1, 3), incident(2, 4), incident(8, 9, differed=1, verdict="equivalent")]
    faults[0].verdict = "exact"
    found = report.summary(faults, 10.0)
    assert (found["lost_seconds"], found["goodput"], found["recovered"]) == (4, 0.6, 3)
    assert found["verdict"] == "equivalent"
    lines = report.table(found)
    assert len(lines) == 5
    assert len({len(line) for line in lines[:4]}) == 1


def test_an_error_of_the_program_is_no_fault_that_was_recovered() -> None:
    other = incident(1, 2, fault="server-killed")
    tries = [incident(n, n + 1, fault="context-lost", cut=7) for n in (3, 4, 5)]
    tries[1].outcome, tries[2].outcome = "failed again", report.DELIVERED
    report.mark_own_error([other, *tries])
    assert [one.own_error for one in (other, *tries)] == [False, True, True, True]
    found = report.summary([other, *tries], 10.0)
    assert (found["recovered"], found["own_errors"]) == (1, 1)
    assert report.counts(found) == "1 of 1 recovered, errors of the program itself: 1"
    assert "came again" in report.table(found)[2]
    alone = report.summary(tries, 10.0)
    assert report.counts(alone) == "errors of the program itself: 1"
    before = incident(1, 2, fault="context-lost", cut=6)
    report.mark_own_error([before, tries[0]])
    assert not before.own_error, "another place"


def test_a_verdict_in_words() -> None:
    assert report.in_words(incident(1, 2, verdict="exact", compared=3)) == "exact"
    some = incident(1, 2, verdict="equivalent", compared=9, differed=2, differed_seq=7)
    assert report.in_words(some).endswith("[2] of [9] values differ, the first at entry [7]")


def test_metrics_are_answered() -> None:
    answer = metrics.respond(b"GET /metrics HTTP/1.1\r\n\r\n", lambda: "a 1\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"Content-Length: 4\r\nConnection: close\r\n\r\na 1\n")
    assert metrics.respond(b"GET / HTTP/1.1\r\n\r\n", str).startswith(b"HTTP/1.1 404 ")


class FakeNvml:
    """What is used of the library."""

    def __init__(self) -> None:
        self.error = ""
        self.action: str | None = None
        self.pending: list[tuple[str, int]] = []

    def watch(self, uuid: str) -> None: ...

    def touch(self, uuid: str) -> None:
        if self.error:
            raise NvmlError("nvmlDeviceGetMemoryInfo", self.error, 1)

    def recovery_action(self, uuid: str) -> str | None:
        return self.action

    def next_xid(self) -> tuple[str, int] | None:
        return self.pending.pop(0) if self.pending else None


def test_what_nvml_knows() -> None:
    library = FakeNvml()
    known = nvml.Nvml(library, ["GPU-a", "GPU-b"])
    assert known.look(0) is None
    library.error = "GPU_IS_LOST"
    lost = known.look(1)
    assert lost is not None
    assert (lost.name, lost.row.do) == ("gpu-lost", classify.Do.OTHER)
    library.error = "NOT_SUPPORTED"
    assert known.look(1) is None
    library.pending = [("GPU-a", 94), ("GPU-b", 79), ("GPU-a", 45), ("GPU-z", 79)]
    found = [(gpu, fault.name) for gpu, fault in known.xids()]
    assert found == [(0, "memory-contained"), (1, "gpu-lost")]
    exit = classify.of_exit(75 << 8, 1, 719)
    assert classify.worse(exit, lost) is lost
    assert classify.worse(exit, None) is exit


def test_what_a_standby_is_told() -> None:
    has = {"A": "1", "B": "2", "RANK": "0", "GONE": "x"}
    assert standby.difference(has, {"A": "1", "B": "3", "RANK": "1", "C": ""}) == "B=3\nC=\nGONE"
    assert standby.difference(has, has) == ""
    assert standby.difference(has, has | {"A": "x" * 256}) is None
    assert standby.difference(has, has | {"A": "two\nlines"}) is None


@pytest.mark.parametrize(
    ("action", "name", "do"),
    [
        ("none", "device-error", classify.Do.SAME),
        ("drain p2p", "gpu-lost", classify.Do.OTHER),
        ("gpu reset", "gpu-lost", classify.Do.OTHER),
        ("action 9", "gpu-lost", classify.Do.OTHER),
    ],
)
def test_the_recovery_action_decides(action: str, name: str, do: classify.Do) -> None:
    library = FakeNvml()
    library.action = action
    known = nvml.Nvml(library, ["GPU-a", "GPU-a"])
    said = known.look(0)
    assert said is not None
    fell_off = classify.of_exit(75 << 8, 1, 999, "it is gone", 7, 2)
    settled = classify.worse(fell_off, said)
    assert (settled.name, settled.row.do) == (name, do)
    killed = classify.of_exit(9)
    assert classify.worse(killed, said).name == (
        name if do is classify.Do.OTHER else "server-killed"
    )
    library.pending = [("GPU-a", 154)]
    gpus = [gpu for gpu, _ in known.xids()]
    assert gpus == ([0, 1] if do is classify.Do.OTHER else []), "both numbers mean this GPU"


def test_what_was_told_wrong_is_said() -> None:
    incident = Incident(0, 0, "diverged", "x", 1.0, 1.0, differed=3, compared=9, corrected=2)
    incident.corrected_text = "entry [5] gives x"
    incident.verdict = report.verdict(incident.differed, incident.corrected)
    words = report.in_words(incident)
    assert words.startswith("corrected: the program was told [2] wrong values ")
    assert words.endswith(": entry [5] gives x; [1] other values differ")
    alike = Incident(0, 0, "x", "x", 1.0, 1.0, verdict="equivalent")
    assert report.summary([incident, alike], 2.0)["verdict"] == "corrected"
    incident.verdict = "diverged"
    assert report.summary([incident, alike], 2.0)["verdict"] == "diverged"
