"""`make ops`: PyTorch's operator database on the soft GPU against the CPU, forward and backward.

Results go to build/ops/<dtype>.jsonl, one line per operator; what is there already is not run
again, unless --again (everything) or --retry (what did not pass) is given.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import select
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import report

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 300


def libraries() -> Path:
    """Return the folder of libsoftgpu.so."""
    named = os.environ.get("SOFTGPU_LIBRARY")
    if named:
        return Path(named).parent
    from pyft._native import native_dir

    return native_dir()


class WorkerError(Exception):
    """The worker ended or did not answer in time."""


class Worker:
    """One process that runs operators, with its own stderr file."""

    def __init__(self, folder: Path) -> None:
        native = libraries()
        read, write = os.pipe()
        self.messages = Path(tempfile.mkstemp(suffix=".err", dir=folder)[1])
        preload = f"{native / 'libsoftgpu.so'}:{native / 'libsoftgpu_nvml.so'}"
        environment = {
            "OMP_NUM_THREADS": "1",
            "TORCH_LINALG_PREFER_CUSOLVER": "1",  # as `pyft run` sets it
            **os.environ,
            "LD_PRELOAD": preload,
        }
        with self.messages.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("worker.py")), str(write),
                 str(self.messages)],
                stdin=subprocess.PIPE, stdout=stderr, stderr=stderr, pass_fds=[write],
                env=environment, text=True,
            )  # fmt: skip
        os.close(write)
        self.answers = os.fdopen(read, "rb", buffering=0)
        self.buffer = b""
        self.names: list[str] = self.answer(START_SECONDS)["ops"]

    def answer(self, seconds: float) -> dict[str, Any]:
        """Wait for the next line."""
        while b"\n" not in self.buffer:
            if not select.select([self.answers], [], [], seconds)[0]:
                raise WorkerError(f"timeout: no result after [{seconds:g}] seconds")
            chunk = self.answers.read(65536)
            if not chunk:
                code = self.process.wait()
                raise WorkerError(f"crash: the process ended with [{code}]: {self.last_words()}")
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def last_words(self) -> str:
        lines = self.messages.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def soft_gpu_words(self) -> list[str]:
        """Return what the soft GPU said about a kernel that failed."""
        text = self.messages.read_text(errors="replace")
        return [line[:400] for line in text.splitlines() if line.startswith("softgpu")][-2:]

    def run(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer(seconds)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.answers.close()
        self.messages.unlink(missing_ok=True)


class Results:
    """The file of one type's results; appended after every operator."""

    def __init__(self, folder: Path, dtype: str, again: bool) -> None:
        self.path = folder / f"{dtype}.jsonl"
        if again:
            self.path.unlink(missing_ok=True)
        self.known = report.read(self.path)
        self.lock = threading.Lock()

    def add(self, op: str, result: dict[str, Any]) -> None:
        with self.lock, self.path.open("a") as file:
            self.known[op] = result
            file.write(json.dumps({"op": op, **result}) + "\n")


def work(todo: queue.Queue, results: Results, options: argparse.Namespace, dtype: str) -> None:
    """Run operators until none is left; a worker that fails in any way is replaced."""
    worker = options.spare.pop() if options.spare else None
    while True:
        try:
            op = todo.get_nowait()
        except queue.Empty:
            break
        worker = worker or Worker(options.out)
        request = {"op": op, "dtype": dtype, "samples": options.samples}
        try:
            result = worker.run(request, options.limit)
        except (WorkerError, BrokenPipeError) as error:
            result = {"status": "failed", "reason": str(error), "dead": "process"}
        if result.pop("dead", ""):
            result["words"] = worker.soft_gpu_words()
            worker.end()
            worker = None
        results.add(op, result)
        print(f"{dtype:10} {op:50} {result['status']:12} {result.get('reason', '')[:200]}",
              flush=True)  # fmt: skip
    if worker:
        options.spare.append(worker)


def run_type(dtype: str, names: list[str], options: argparse.Namespace) -> None:
    """Run what is to be run of one type."""
    results = Results(options.out, dtype, options.again)
    todo: queue.Queue = queue.Queue()
    for op in names:
        known = results.known.get(op)
        stale = options.retry and known and known["status"] in ("failed", "unsupported")
        if re.search(options.ops, op) and (known is None or stale):
            todo.put(op)
    threads = [
        threading.Thread(target=work, args=(todo, results, options, dtype))
        for _ in range(min(options.jobs, todo.qsize()))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", action="append", help="float32 unless given; repeatable")
    parser.add_argument("--ops", default="", help="regular expression over the operators' names")
    parser.add_argument("--samples", type=int, default=2, help="per operator and type")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--limit", type=float, default=120, help="seconds per operator and type")
    parser.add_argument("--again", action="store_true", help="forget earlier results")
    parser.add_argument("--retry", action="store_true", help="repeat what did not pass")
    parser.add_argument("--report", action="store_true", help="only print the table")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "ops")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report:
        first = Worker(options.out)
        options.spare = [first]  # started workers that nobody uses
        for dtype in options.dtype or ["float32"]:
            run_type(dtype, first.names, options)
        for worker in options.spare:
            worker.end()
    print(report.table(options.out))


if __name__ == "__main__":
    main()
