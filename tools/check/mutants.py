"""Mutation testing of single modules: which change of the code does no test notice?

    python tools/check/mutants.py [--module NAME]... [--jobs N] [--every N] [--list]

mutants.toml says which modules, by which tests they are judged, and which mutants may survive, each
with its reason. Exits with 1 if another one survives, if one of those is killed meanwhile, or if
too few are killed. The source is not touched: each mutant is imported in a process of its own,
which is forked with pytest already loaded. Whole modules are mutated, tables too, and not function
bodies only, as mutmut does; cosmic-ray would start Python anew for each.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import mutation_results
import pytest
from mutations import Mutant, mutants

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("mutants.toml")
LEAST_KILLED = 0.95
LONGEST = 600.0  # seconds of the clock, for a mutant that waits; nothing here takes long by itself
TIMES = 10  # or as many times as long as the tests take without a mutant
MEMORY = 8 << 30  # a mutant that grows without an end is killed as well
# --assert=plain: else pytest imports modules of pyft by its own finder, as they belong to a plugin
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "--assert=plain")


@dataclass(frozen=True)
class Module:
    """A row of mutants.toml."""

    name: str
    tests: list[str]
    survivors: dict[str, str]  # mutant -> reason
    without: str = ""  # tests that judge no mutant, as pytest's -k takes it

    def arguments(self) -> list[str]:
        """Return what pytest is told."""
        left_out = ["-k", f"not ({self.without})"] if self.without else []
        return [*PYTEST, *left_out, *(str(ROOT / test) for test in self.tests)]


def table() -> list[Module]:
    """Read mutants.toml."""
    rows = tomllib.loads(TABLE.read_text())["module"]
    return [
        Module(r["name"], r["tests"], r.get("survivors", {}), r.get("without", "")) for r in rows
    ]


class _Loader(importlib.machinery.SourceFileLoader):
    """Gives a module other code than its file has."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class _Finder:
    """Finds that module, and no other one."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        self._name = name
        self._spec = importlib.util.spec_from_file_location(
            name, path, loader=_Loader(name, path, code)
        )

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        return self._spec if name == self._name else None


def start(module: Module, path: str, code: CodeType, seconds: float, clock: float = 0.0) -> int:
    """Run the tests on this code in a new process, which has so much processor time; return its pid.

    The clock says little, as on a busy machine anything takes long. 0: it may take as long as it does.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 70
    with contextlib.suppress(BaseException):
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        for what, most in (
            (resource.RLIMIT_AS, MEMORY),
            (resource.RLIMIT_CPU, int(seconds) + 1),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(what, (most, most))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout may have a handler here
        signal.setitimer(signal.ITIMER_REAL, clock)
        sys.meta_path.insert(0, _Finder(module.name, path, code))
        sys.dont_write_bytecode = True
        status = int(pytest.main(module.arguments()))
    os._exit(status)


def survived(status: int, what: str) -> bool:
    """Judge by the status of wait(). Tests that cannot be run are an error of this table."""
    if os.WIFSIGNALED(status):
        return False
    code = os.WEXITSTATUS(status)
    if code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"mutants: the tests of [{what}] cannot be run: pytest says [{code}]")
    return code == 0


def measured(module: Module, path: str) -> tuple[float, float]:
    """Run the tests without a mutant; return their processor time, and how long one that waits has."""
    whole = compile(Path(path).read_text(), path, "exec")
    began = time.monotonic()
    _, status, used = os.wait4(start(module, path, whole, LONGEST), 0)
    if not survived(status, module.name):
        raise SystemExit(f"mutants: the tests of [{module.name}] fail without a mutant")
    return used.ru_utime + used.ru_stime, max(LONGEST, TIMES * (time.monotonic() - began))


def judge(module: Module, found: list[Mutant], path: str, jobs: int) -> list[Mutant]:
    """Return those that no test notices.

    One that is late waits for something, or the machine has become slower: then it is tried again.
    """
    processor, clock = measured(module, path)
    running: dict[int, Mutant] = {}
    alive = []
    todo = found[::-1]
    while todo or running:
        while todo and len(running) < jobs:
            mutant = todo.pop()
            pid = start(module, path, mutant.code, 20 + 20 * processor, clock)
            running[pid] = mutant
        pid, status = os.wait()
        ended = running.pop(pid)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
            _, now = measured(module, path)
            if now > clock:
                clock = now
                todo.append(ended)
                continue
        if survived(status, module.name):
            alive.append(ended)
            print(f"  line {ended.line}: {ended.text}", flush=True)
    return alive


def report(module: Module, found: list[Mutant], alive: list[Mutant], whole: bool) -> bool:
    """Print what has come out; say whether it is as the table has it."""
    texts = {mutant.text for mutant in alive}
    new = sorted(texts - module.survivors.keys())
    gone = sorted(module.survivors.keys() - texts) if whole else []
    killed = 1 - len(alive) / len(found)
    print(f"{module.name}: {len(found)} mutants, {killed:.1%} killed, {len(new)} not expected")
    for text in gone:
        print(f"  is killed, or no mutant any more: {text}")
    return not new and not gone and (killed >= LEAST_KILLED or not whole)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--module", action="append", help="only this one, as pyft.recovery.plan")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=1, help="only each N-th mutant")
    parser.add_argument("--list", action="store_true", help="name the mutants, and run none")
    parser.add_argument("--note", action="store_true", help="write results into docs/spec")
    asked = parser.parse_args()
    good = True
    for module in table():
        if asked.module and module.name not in asked.module:
            continue
        path = Path(importlib.util.find_spec(module.name).origin)  # type: ignore[union-attr,arg-type]
        found = mutants(path)[:: asked.every]
        if asked.list:
            print("\n".join(f"{module.name}:{m.line}: {m.text}" for m in found))
            continue
        alive = judge(module, found, str(path), asked.jobs)
        if asked.note:
            texts = sorted(mutant.text for mutant in alive)
            tried, of = len(found), len(mutants(path))
            counts = {"tried": tried, "of": of, "killed": tried - len(alive), "alive": texts}
            mutation_results.note(module.name, how=f"each {asked.every}th", **counts)
        good &= report(module, found, alive, asked.every == 1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
