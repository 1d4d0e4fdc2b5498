"""What pyft relies on in a driver, measured: the address window, mappings, words, faults, phases.

Each check runs programs of measure/ (driver.h says what they print) and compares processes.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from checklist import Check, FailError, SkipError
from machine import ROOT, Machine, end

PROCESSES = 5  # of a kind, that reserve the window
WINDOW_RESERVE_S = 10.0  # of that check's time, when no more of them are started
RELOADS = 20
BACK_MIB = 64  # memory counts as given back when all but this is free again
FAULTS = {"do_trap": "trap", "do_illegal": "illegal address", "do_assert": "assert"}


@dataclass
class Measured:
    """What one program printed."""

    figures: dict[str, tuple[float, str]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    def text(self, *names: str) -> list[str]:
        """Return figures in words, all of them if none is named."""
        chosen = names or tuple(self.figures)
        return [f"{name} {self.figures[name][0]:.4g} {self.figures[name][1]}" for name in chosen]


def read(output: str) -> Measured:
    """Understand the lines of a program; raise what it says about itself."""
    measured = Measured()
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        if word == "fail":
            raise FailError(rest)
        if word == "skip":
            raise SkipError(rest)
        if word == "figure":
            name, value, *unit = rest.split()
            measured.figures[name] = (float(value), " ".join(unit))
        if word == "address":
            name, value = rest.split()
            measured.addresses[name] = value
    return measured


def measure(
    machine: Machine, *words: str, environment: Mapping[str, str] | None = None
) -> Measured:
    """Run one program; a failure is one of what it measures."""
    return read(machine.run(program(machine, *words), environment, accept=(0, 1)))


def program(machine: Machine, *words: str) -> list[str]:
    binary = machine.folder / "measure"
    if not binary.exists():
        raise FailError("the programs are not built: see the check named build-measurements")
    if "MEASURE_DRIVER" not in machine.environment:
        machine.need_device()
    return [str(binary), *words]


def fixes_addresses(machine: Machine) -> bool:
    """Say whether programs may be run without ASLR, as servers are; some containers forbid it."""
    try:
        machine.run(["setarch", "-R", "true"])
    except (FailError, FileNotFoundError):
        return False
    return True


def without_randomization(command: list[str]) -> list[str]:
    """Return a command that runs as servers do that must find addresses again."""
    return ["setarch", "-R", *command]


def libraries(machine: Machine) -> str:
    """Return what a server loads before it reserves its window."""
    if not machine.gpu:
        return str(machine.native / "libsoftgpu.so") if machine.native else ""
    folders: list[Path] = []
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations if spec else []:
        folders += [found.parent for found in sorted(Path(root).glob("*/lib/libcudart.so.13"))]
        folders += [found.parent for found in sorted(Path(root).glob("*/lib/libnccl.so.2"))]
    names = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libnccl.so.2")
    return ":".join(str(f / n) for n in names for f in folders if (f / n).exists())


def window(machine: Machine) -> list[str]:
    """Reserve 1 TiB at the fixed address in fresh processes, with and without ASLR.

    Those that run as servers do must all get it.
    """
    alone = program(machine, "window")
    loaded = program(machine, "window", libraries(machine))
    commands = {"ASLR": alone, "ASLR, libraries": loaded}
    if fixed := fixes_addresses(machine):
        commands["no ASLR"] = without_randomization(alone)
        commands["no ASLR, libraries"] = without_randomization(loaded)
    got: dict[str, list[float]] = {name: [] for name in commands}
    why: dict[str, str] = {}
    number = 0
    while number < PROCESSES and machine.left() > WINDOW_RESERVE_S:
        number += 1
        for name, command in commands.items():
            try:
                one = read(machine.run(command, accept=(0, 1)))
                got[name].append(one.figures["reserve_us"][0])
            except FailError as error:
                why[name] = str(error)
    texts = [f"{name}: {len(got[name])} of {number} processes" for name in commands]
    if wrong := [
        why[name] for name in commands if name in why and (not fixed or name.startswith("no"))
    ]:
        raise FailError(f"{'; '.join(texts)}: {wrong[0]}")
    times = [time for of_name in got.values() for time in of_name]
    return [*texts, f"{statistics.median(times):g} us"]


def mapping(machine: Machine) -> list[str]:
    return measure(machine, "mapping").text()


def registered(machine: Machine) -> list[str]:
    small = measure(machine, "registered", "small")
    huge = measure(machine, "registered", "huge")
    rate, unit = huge.figures["register"]
    return [*small.text(), f"register with huge pages advised {rate:g} {unit}"]


def words(machine: Machine) -> list[str]:
    return measure(machine, "words").text()


def phases(machine: Machine) -> list[str]:
    """Measure what a new server spends: in processes that are the first, and the second."""
    blas = next((lib for lib in libraries(machine).split(":") if "cublas.so" in lib), "")
    if not machine.gpu:
        blas = libraries(machine)
    began = time.monotonic()
    measure(machine, "phases", blas)
    first = time.monotonic() - began
    second = measure(machine, "phases", blas)
    return [f"first process {first * 1e3:.0f} ms", *second.text()]


def modules(machine: Machine) -> list[str]:
    """Load the same module in fresh processes and compare what lies where."""
    if not fixes_addresses(machine):
        raise SkipError("this container forbids to run programs without ASLR")
    found: dict[str, set[tuple[str, str]]] = {}
    plain = program(machine, "modules")
    for name, command in {"ASLR": plain, "no ASLR": without_randomization(plain)}.items():
        for _ in range(RELOADS):
            got = read(machine.run(command, accept=(0, 1))).addresses
            found.setdefault(name, set()).add((got["variable"], got["code"]))
    # More than one is no failure: servers put contents where the driver puts the module.
    return [f"{name}: {len(places)} places in {RELOADS} loads" for name, places in found.items()]


def capture(machine: Machine) -> list[str]:
    return measure(machine, "capture").text()


def digest(machine: Machine) -> list[str]:
    """Hash device memory there and, beside it, copy it and hash it here: the bits are the same."""
    mib = "1024" if machine.gpu else "32"
    got = measure(machine, "digest", mib)
    return [f"{mib} MiB", *got.text()]


def free_mib(machine: Machine) -> float:
    return measure(machine, "hold", "free").figures["free_MiB"][0]


def held_and_killed(machine: Machine, how: str, percent: int) -> float:
    """Return the seconds from SIGKILL until the memory is free again, for another process."""
    before = free_mib(machine)
    process = machine.start(program(machine, "hold", f"{how}{percent}"))
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("holding"):
                break
        else:
            read("".join(lines))
            raise FailError(f"the process that holds memory ({how}) ends: {lines[-1:]}")
        time.sleep(0.2)  # busy and hung ones get going
        began = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=machine.left())
        while free_mib(machine) < before - BACK_MIB:
            if machine.left() <= 1:
                raise FailError(f"memory of a killed process ({how}) does not come back")
        return time.monotonic() - began
    except subprocess.TimeoutExpired:
        raise FailError(f"a process ({how}) does not die of SIGKILL") from None
    finally:
        if process.poll() is None:
            end(process)


def killed(machine: Machine) -> list[str]:
    """Kill processes that hold most of the GPU."""
    machine.need_gpu("memory of a soft GPU is the process's own")
    return [f"{how} {held_and_killed(machine, how, 85):.2f} s" for how in ("idle", "busy", "hung")]


def faults(machine: Machine) -> list[str]:
    """Let kernels fail; a new process must work at once, and NVML must agree."""
    texts = []
    for kernel, name in FAULTS.items():
        got = measure(machine, "faults", kernel)
        after = measure(machine, "mapping")
        assert after.figures
        texts.append(f"{name}: code {got.figures['code'][0]:.0f}, a new process works")
    if machine.gpu:
        action = recovery_action(machine)
        if action != "none" and not action.startswith("unknown"):
            raise FailError(f"NVML's recovery action is [{action}] after faults of kernels")
        texts.append(f"recovery action {action}")
    return texts


def recovery_action(machine: Machine) -> str:
    """Return what NVML says must happen before the GPU works again."""
    code = "from pyft._native import driver, nvml; print(nvml.recovery_action(driver.gpus()[0]))"
    # pyft may not be built yet: this needs its Python alone.
    environment = {} if machine.pyft else {"PYTHONPATH": str(ROOT)}
    return machine.run([sys.executable, "-c", code], environment).strip()


NEEDS = ("build-measurements",)
CHECKS = (
    Check("window", 5, 30, window, NEEDS),
    Check("mapping", 2, 20, mapping, NEEDS),
    Check("registered-memory", 5, 30, registered, NEEDS),
    Check("completion-words", 3, 20, words, NEEDS),
    Check("killed-process", 15, 50, killed, NEEDS),
    Check("module-addresses", 15, 40, modules, NEEDS),
    Check("start-phases", 4, 30, phases, NEEDS),
    Check("kernel-faults", 12, 40, faults, NEEDS),
    Check("capture-threads", 3, 20, capture, NEEDS),
    Check("device-digests", 4, 30, digest, NEEDS),
)
