"""Mutation testing of C++ files: which change of the code does no test notice?

    python tools/check/source_mutants.py [--file NAME]... [--sample N] [--seed S] [--jobs N]

source_mutants.toml says which files, by which tests each is judged, and which mutants may survive,
each with its reason. A mutant is compiled alone, as build/meson compiles the file but without
optimization, and linked with the objects of a test that are there. One that does not compile is none.
A test ends at the first thing that is wrong. It kills a mutant if it fails twice in three runs: one
failure may be that of a busy machine. After every fifth kill the test has to pass without a mutant.
Results are kept in build/mutants: a mutant that has been
judged is not judged again until the file changes, or the test that has killed it, or any test that
it has survived.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import mutation_results
from mutant_runs import FIRST, End, Limits, measured, run
from source_mutations import Mutant, mutants, sample

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "meson"
WORK = ROOT / "build" / "mutants"
TABLE = Path(__file__).with_name("source_mutants.toml")
LEAST_KILLED = 0.95
KILLS_PER_CONTROL = 5
KILLED, SURVIVED, NO_MUTANT = "killed", "survived", "does not compile"


@dataclass(frozen=True)
class Source:
    """A row of source_mutants.toml."""

    file: str
    tests: list[str]  # targets of build/meson
    survivors: dict[str, str]  # mutant -> reason


def table() -> list[Source]:
    """Read source_mutants.toml."""
    rows = tomllib.loads(TABLE.read_text())["source"]
    return [Source(r["file"], r["tests"], r.get("survivors", {})) for r in rows]


class Compiler:
    """Makes a test in which one file is another one."""

    def __init__(self, file: str, tests: list[str]) -> None:
        subprocess.run(["ninja", "-C", str(BUILD), *tests], check=True, stdout=subprocess.DEVNULL)
        known = json.loads((BUILD / "compile_commands.json").read_text())
        (entry, *_) = [one for one in known if (BUILD / one["file"]).resolve() == ROOT / file]
        self._object = entry["output"]
        self._compile = self._without_optimization(shlex.split(entry["command"]), entry["file"])
        self._folder = str((ROOT / file).parent)
        self._links = {test: self._link(test) for test in tests}

    @staticmethod
    def _without_optimization(words: list[str], file: str) -> list[str]:
        left = [w for w in words if w not in ("-O3", "-Werror", "-c", "/usr/bin/ccache", file)]
        keep, skip = [], False
        for word in left:
            if skip or word in ("-o", "-MQ", "-MF"):
                skip = not skip
            elif word != "-MD":
                keep.append(word)
        return [*keep, "-O0", "-w"]

    def _link(self, test: str) -> list[str]:
        command = ["ninja", "-C", str(BUILD), "-t", "commands", "-s", test]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return shlex.split(text.strip().splitlines()[-1])

    def compiled(self, mutant: Mutant, name: str) -> Path | None:
        """Return the mutant's object, or nothing."""
        WORK.mkdir(parents=True, exist_ok=True)
        source, out = WORK / f"{name}.cc", WORK / f"{name}.o"
        source.write_text(mutant.source)
        line = [*self._compile, "-I", self._folder, "-c", str(source), "-o", str(out)]
        done = subprocess.run(line, cwd=BUILD, capture_output=True)
        return None if done.returncode else out

    def linked(self, test: str, changed: Path) -> Path:
        """Return a test with the changed object in front of all others."""
        out = changed.with_name(f"{changed.stem}-{Path(test).name}")
        words = [w for w in self._links[test] if w != self._object]
        words[words.index("-o") + 1] = str(out)
        at = next(i for i, w in enumerate(words) if w.endswith((".o", ".a")))
        subprocess.run([*words[:at], str(changed), *words[at:]], cwd=BUILD, check=True)
        return out


class Judge:
    """Judges the mutants of one file, several at a time."""

    def __init__(self, source: Source) -> None:
        self.source, self.compiler = source, Compiler(source.file, source.tests)
        self._lock, self._measures = threading.Lock(), threading.Lock()
        original = Mutant(0, "", (ROOT / source.file).read_text())
        changed = self.compiler.compiled(original, self._name("original"))
        if changed is None:
            raise SystemExit(f"mutants: [{source.file}] does not compile without a mutant")
        self._originals = {test: self.compiler.linked(test, changed) for test in source.tests}
        self.memory = WORK / (source.file.replace("/", "-") + ".json")
        self._keys = {
            test: hashlib.sha256(original.source.encode() + (BUILD / test).read_bytes()).hexdigest()
            for test in source.tests
        }
        self._all = list(self._keys.values())
        self.known: dict[str, list[str]] = (
            json.loads(self.memory.read_text()) if self.memory.exists() else {}
        )
        self._kills_of: Counter[str] = Counter()
        self.limits = {test: self._measured(test) for test in source.tests}

    def judged(self, number: int, mutant: Mutant) -> str:
        """Say what becomes of one. Known is a verdict with the tests that it depends on."""
        verdict, *keys = self.known.get(mutant.text, [""])
        if keys in ([[key] for key in self._keys.values()] if verdict == KILLED else [self._all]):
            return verdict
        verdict, *keys = self._tried(mutant, self._name(str(number)))
        with self._lock:
            self.known[mutant.text] = [verdict, *keys]
            self.memory.write_text(json.dumps(self.known, indent=1))
        return verdict

    def _name(self, what: str) -> str:
        return f"{Path(self.source.file).stem}-{os.getpid()}-{what}"

    def _measured(self, test: str, limits: Limits = FIRST) -> Limits:
        """Run a test without a mutant; return the limits for the machine as it is now."""
        with self._measures:
            end, found = measured(self._originals[test], limits)
        if end is not End.WELL:
            self._forget(test)
            raise SystemExit(f"mutants: [{test}] fails without a mutant: [{end.value}]")
        return found

    def _forget(self, test: str) -> None:
        """Forget what a test has killed: it may have failed by itself."""
        with self._lock:
            key = self._keys[test]
            self.known = {text: found for text, found in self.known.items() if found[1:] != [key]}
            self.memory.write_text(json.dumps(self.known, indent=1))

    def _tried(self, mutant: Mutant, name: str) -> list[str]:
        changed = self.compiler.compiled(mutant, name)
        verdict = [NO_MUTANT if changed is None else SURVIVED, *self._all]
        for test in self.source.tests if changed else []:
            if self._kills(test, self.compiler.linked(test, changed)):
                verdict = [KILLED, self._keys[test]]
                break
        for path in WORK.glob(f"{name}[.-]*"):
            path.unlink()
        return verdict

    def _kills(self, test: str, binary: Path) -> bool:
        """Say whether it fails twice. Most that fail once do; two that pass mean that it does not."""
        failed = passed = 0
        while failed < 2 and passed < 1 + (failed > 0):
            end = run(binary, self.limits[test])
            if end is End.LATE and not failed:
                self.limits[test] = self.limits[test].on(self._measured(test))
            failed, passed = failed + (end is not End.WELL), passed + (end is End.WELL)
        if failed == 2:
            self._control(test)
        return failed == 2

    def _control(self, test: str) -> None:
        """Run a test without a mutant after some kills: one that fails by itself kills anything."""
        with self._lock:
            self._kills_of[test] += 1
            is_due = self._kills_of[test] % KILLS_PER_CONTROL == 0
        if is_due:
            self._measured(test)


def judged(judge: Judge, chosen: list[Mutant], jobs: int) -> dict[str, str]:
    """Judge them; print those that survive."""

    def one(number: int) -> str:
        verdict = judge.judged(number, chosen[number])
        if verdict == SURVIVED:
            line, text = chosen[number].line, chosen[number].text
            print(f"  {judge.source.file}:{line}: {text}", flush=True)
        return verdict

    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(one, number) for number in range(len(chosen))]
        try:
            verdicts = [each.result() for each in running]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {mutant.text: verdict for mutant, verdict in zip(chosen, verdicts, strict=True)}


def report(source: Source, verdicts: dict[str, str], whole: bool) -> bool:
    """Print what has come out; say whether it is as the table has it."""
    counts = Counter(verdicts.values())
    tried = counts[KILLED] + counts[SURVIVED]
    alive = {text for text, verdict in verdicts.items() if verdict == SURVIVED}
    new = sorted(alive - source.survivors.keys())
    gone = sorted(source.survivors.keys() & {t for t, v in verdicts.items() if v == KILLED})
    share = counts[KILLED] / tried if tried else 1.0
    extent = "all" if whole else "a sample"
    print(
        f"{source.file}: {tried} mutants ({extent}), {share:.1%} killed, {len(alive)} survive, "
        f"{len(new)} of them not expected; {counts[NO_MUTANT]} did not compile",
        flush=True,
    )
    for text in gone:
        print(f"  is killed: {text}")
    for text in new:
        print(f"  not expected: {text}")
    return not new and not gone and (share >= LEAST_KILLED or not whole)


def note(source: Source, verdicts: dict[str, str], every: int, seed: int) -> None:
    """Write results into docs/spec. Those that do not compile are no mutants."""
    counts = Counter(verdicts.values())
    tried = counts[KILLED] + counts[SURVIVED]
    of = tried if len(verdicts) == every else every - counts[NO_MUTANT]
    alive = sorted(text for text, verdict in verdicts.items() if verdict == SURVIVED)
    mutation_results.note(
        source.file, tried=tried, of=of, how=f"seed {seed}", killed=counts[KILLED], alive=alive
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--file", action="append", help="only this one")
    parser.add_argument("--sample", type=int, default=10**6, help="so many of each file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="name the mutants, and run none")
    parser.add_argument("--note", action="store_true", help="write results into docs/spec")
    asked = parser.parse_args()
    good = True
    for source in table():
        if asked.file and source.file not in asked.file:
            continue
        every = mutants(ROOT / source.file)
        chosen = sample(every, asked.sample, asked.seed)
        if asked.list:
            print("\n".join(f"{source.file}:{m.line}: {m.text}" for m in chosen))
            continue
        verdicts = judged(Judge(source), chosen, asked.jobs)
        for path in WORK.glob(f"*-{os.getpid()}-*"):
            path.unlink()
        good &= report(source, verdicts, len(chosen) == len(every))
        if asked.note:
            note(source, verdicts, len(every), asked.seed)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
