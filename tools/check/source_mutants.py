"""Mutation testing of C++ files: which change of the code does no test notice?

    python tools/check/source_mutants.py [--file NAME]... [--sample N] [--seed S] [--list]

source_mutants.toml says which files, by which tests each is judged, and which mutants may survive,
each with its reason. A mutant is compiled alone, as build/meson compiles the file but without
optimization, and linked with the objects of a test that are there. One that does not compile is none.
Results are kept in build/mutants: a mutant that has been judged is not judged again until file or
tests change.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mutation_results
from source_mutations import Mutant, mutants, sample

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "meson"
WORK = ROOT / "build" / "mutants"
TABLE = Path(__file__).with_name("source_mutants.toml")
MEMORY = 6 << 30
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

    def compiled(self, mutant: Mutant) -> Path | None:
        """Return the mutant's object, or nothing."""
        WORK.mkdir(parents=True, exist_ok=True)
        source, out = WORK / f"mutant-{os.getpid()}.cc", WORK / f"mutant-{os.getpid()}.o"
        source.write_text(mutant.source)
        line = [*self._compile, "-I", self._folder, "-c", str(source), "-o", str(out)]
        done = subprocess.run(line, cwd=BUILD, capture_output=True)
        return None if done.returncode else out

    def linked(self, test: str, changed: Path) -> Path:
        """Return a test with the changed object in front of all others."""
        out = WORK / f"test-{os.getpid()}"
        words = [w for w in self._links[test] if w != self._object]
        words[words.index("-o") + 1] = str(out)
        at = next(i for i, w in enumerate(words) if w.endswith((".o", ".a")))
        subprocess.run([*words[:at], str(changed), *words[at:]], cwd=BUILD, check=True)
        return out


def passes(test: Path, seconds: float) -> bool:
    """Run a test; say whether it ends well."""

    def limited() -> None:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    null = subprocess.DEVNULL
    process = subprocess.Popen([str(test)], preexec_fn=limited, stdout=null, stderr=null)  # noqa: PLW1509
    try:
        return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Judge:
    """Judges the mutants of one file."""

    def __init__(self, source: Source) -> None:
        self.source, self.compiler = source, Compiler(source.file, source.tests)
        original = Mutant(0, "", (ROOT / source.file).read_text())
        self.limits: dict[str, float] = {}
        changed = self.compiler.compiled(original)
        if changed is None:
            raise SystemExit(f"mutants: [{source.file}] does not compile without a mutant")
        for test in source.tests:
            began = time.monotonic()
            if not passes(self.compiler.linked(test, changed), 600):
                raise SystemExit(f"mutants: [{test}] fails without a mutant")
            self.limits[test] = 20 + 10 * (time.monotonic() - began)
        self.memory = WORK / (source.file.replace("/", "-") + ".json")
        key = hashlib.sha256(original.source.encode())
        for test in source.tests:
            key.update((BUILD / test).read_bytes())
        self.key = key.hexdigest()
        kept = json.loads(self.memory.read_text()) if self.memory.exists() else {}
        self.known: dict[str, str] = kept["known"] if kept.get("key") == self.key else {}

    def judged(self, mutant: Mutant) -> str:
        """Say what becomes of one."""
        if mutant.text not in self.known:
            self.known[mutant.text] = self._tried(mutant)
            self.memory.write_text(json.dumps({"key": self.key, "known": self.known}, indent=1))
        return self.known[mutant.text]

    def _tried(self, mutant: Mutant) -> str:
        changed = self.compiler.compiled(mutant)
        if changed is None:
            return NO_MUTANT
        for test in self.source.tests:
            if not passes(self.compiler.linked(test, changed), self.limits[test]):
                return KILLED
        return SURVIVED


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
    return not new and not gone


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
        judge = Judge(source)
        verdicts = {}
        for mutant in chosen:
            verdicts[mutant.text] = judge.judged(mutant)
            if verdicts[mutant.text] == SURVIVED:
                print(f"  {source.file}:{mutant.line}: {mutant.text}", flush=True)
        good &= report(source, verdicts, len(chosen) == len(every))
        if asked.note:
            note(source, verdicts, len(every), asked.seed)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
