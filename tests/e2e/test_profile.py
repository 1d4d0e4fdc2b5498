"""torch.profiler shows what the device does: as rows that belong to the calls that asked for them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from job import PYFT

PROGRAMS = Path(__file__).with_name("programs")
MODES = {
    "direct": ("--direct", "--gpus", "soft:1"),
    "proxied": ("--gpus", "soft:1"),
}
# Of the runtime, what a row of the device may come from.
LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"}
ROUNDING_US = 0.01  # of times in the trace


@dataclass
class Run:
    """What a run of the program has printed, and what its profiler has seen."""

    bits: list[str]
    errors: str
    seen: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.seen["rows"], key=lambda row: row["args"]["correlation"])


def output(options: tuple[str, ...], *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the folder."""
    program = str(PROGRAMS / command[0])
    done = subprocess.run(
        [PYFT, "run", *options, "--", sys.executable, program, *command[1:]],
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def run(options: tuple[str, ...], *arguments: str) -> tuple[list[str], str]:
    """Train, and return losses and weights, and what was said on stderr."""
    done = output(options, "profiled.py", *arguments)
    bits = [line for line in done.stdout.splitlines() if line.startswith(("loss", "weights"))]
    assert len(bits) == 7
    return bits, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Each mode under the profiler."""
    made = {}
    for mode, options in MODES.items():
        rows = tmp_path_factory.mktemp(mode) / "rows.json"
        bits, errors = run(options, "--rows", str(rows))
        made[mode] = Run(bits, errors, json.loads(rows.read_text()))
    return made


@pytest.fixture(params=list(MODES))
def profiled(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    """The run of one mode."""
    return runs[request.param]


def launches(seen: dict[str, Any]) -> list[int]:
    """Return the ids of the calls that a row of the device may come from."""
    return [call["args"]["correlation"] for call in seen["calls"] if call["name"] in LAUNCHES]


def test_each_launch_has_one_row(profiled: Run) -> None:
    assert len(launches(profiled.seen)) > 60
    rows = Counter(row["args"]["correlation"] for row in profiled.rows)
    assert rows == Counter(launches(profiled.seen))


def test_rows_have_time_between_their_launch_and_the_end(profiled: Run) -> None:
    began = {call["args"]["correlation"]: call["ts"] for call in profiled.seen["calls"]}
    waits = [c for c in profiled.seen["calls"] if c["name"] == "cudaStreamSynchronize"]
    assert len(waits) >= 3
    for row in profiled.rows:
        launched = began[row["args"]["correlation"]]
        next_end = min((w["ts"] + w["dur"] for w in waits if w["ts"] > launched), default=None)
        assert row["dur"] > 0, row
        assert row["ts"] >= launched - ROUNDING_US, row
        if next_end is not None:
            assert row["ts"] + row["dur"] <= next_end + ROUNDING_US, row


def test_rows_name_kernels_and_copies(profiled: Run) -> None:
    names = {row["name"] for row in profiled.rows}
    assert {"cublas", "Memcpy HtoD (Pageable -> Device)"} <= names
    assert any("vectorized_elementwise_kernel" in name for name in names)
    assert any("multi_tensor_apply_kernel" in name for name in names)
    of_torch = [row for row in profiled.rows if "vectorized_elementwise_kernel" in row["name"]]
    assert all(row["args"]["block"] == [128, 1, 1] for row in of_torch)
    assert all(row["args"]["registers per thread"] > 0 for row in of_torch)
    # One batch a step: sixteen rows of 24 floats.
    to_device = [row for row in profiled.rows if "HtoD" in row["name"]]
    assert [row["args"]["bytes"] for row in to_device] == [16 * 24 * 4] * 3


def test_operators_have_the_time_of_their_kernels(profiled: Run) -> None:
    averages = profiled.seen["averages"]
    for operator in ("aten::mm", "aten::addmm", "aten::relu", "aten::copy_"):
        assert averages[operator] > 0, operator


def test_the_trace_leads_from_launches_to_rows(profiled: Run) -> None:
    starts = {flow["id"] for flow in profiled.seen["flows"] if flow["ph"] == "s"}
    ends = {flow["id"] for flow in profiled.seen["flows"] if flow["ph"] == "f"}
    rows = {row["args"]["correlation"] for row in profiled.rows}
    assert rows <= starts & ends


@pytest.mark.parametrize("mode", MODES)
def test_bits_are_those_without_a_profiler(mode: str, runs: dict[str, Run]) -> None:
    bits, _ = run(MODES[mode])
    assert runs[mode].bits == bits


def test_servers_show_what_is_there_without_them(runs: dict[str, Run]) -> None:
    def work(mode: str) -> list[tuple[Any, ...]]:
        shown = ("grid", "block", "registers per thread", "shared memory", "bytes")
        return [(row["name"], *map(row["args"].get, shown)) for row in runs[mode].rows]

    assert work("proxied") == work("direct")


def test_a_server_that_dies_takes_its_rows_with_it(tmp_path: Path, runs: dict[str, Run]) -> None:
    rows = tmp_path / "rows.json"
    fault = ("--inject", "server-kill,rank=0,step=3,call=20")
    bits, errors = run((*MODES["proxied"], *fault), "--rows", str(rows))
    assert bits == runs["proxied"].bits
    seen = json.loads(rows.read_text())
    shown = Counter(row["args"]["correlation"] for row in seen["rows"])
    assert set(shown.values()) == {1}
    assert len(launches(seen)) == len(launches(runs["proxied"].seen))
    told = re.search(r"the profile lacks what device \[0\] has done for \[(\d+)\] calls", errors)
    assert told, errors
    # One step of three and more is done by the server that follows.
    assert 0 < int(told[1]) < len(launches(seen)) * 2 / 3
    assert int(told[1]) == len(launches(seen)) - len(shown)


@pytest.mark.parametrize("how", [("--direct",), ()], ids=["direct", "proxied"])
def test_rows_lie_on_their_device_and_graphs_have_their_kernels(how: tuple[str, ...]) -> None:
    done = output(("--gpus", "soft:2", *how), "profiled_devices.py")
    rows = [line for line in done.stdout.splitlines() if line.startswith("row")]
    kernel = "void at::native::vectorized_elementwise_kernel"
    assert "sums 4096.0 192.0" in done.stdout
    assert Counter(rows) == {
        f"row 0 {kernel} cudaGraphLaunch": 4,  # two, launched twice
        f"row 1 {kernel} cudaLaunchKernel": 1,
        "row 0 Memset (Device) cudaMemsetAsync": 1,
        "row 1 Memcpy DtoH (Device -> Pageable) cudaMemcpyAsync": 1,
    }


@pytest.mark.parametrize("how", [("--direct",), ()], ids=["direct", "proxied"])
def test_a_collective_is_one_row_of_each_rank(how: tuple[str, ...]) -> None:
    starter = Path(__file__).parents[1] / "ranks.py"
    program = str(PROGRAMS / "profiled_ranks.py")
    done = output(("--gpus", "soft:2", *how), str(starter), "2", program)
    for rank in (0, 1):
        assert f"rank {rank} sum 6000.0" in done.stdout
        assert f"rank {rank} rows 3 on {{{rank}: 3}}" in done.stdout
        assert f"rank {rank} in time True" in done.stdout


def test_nothing_is_said(profiled: Run) -> None:
    assert not re.search("CUPTI|cupti[A-Z]", profiled.errors)
    assert "is not supported" not in profiled.errors
    assert "WARNING" not in profiled.errors
