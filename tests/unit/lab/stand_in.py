"""`pyft lab run` whose jobs are stand-ins: python stand_in.py run MATRIX --out FOLDER

A job writes what a rank writes, and a log of `STAND_IN_LOG` bytes, in about `STAND_IN_S` seconds.
`STAND_IN_BAD` names mechanisms that end with other parameters, `STAND_IN_ENDS` those whose rank 1
ends with an error. With `STAND_IN_ASKS=0` it asks for no end of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from pyft_lab.api import ASKED, OF_JOBS

LINES = 8
WAIT_S = 60.0  # to be killed


def job(folder: Path) -> None:
    cell = json.loads((folder / "cell.json").read_text())
    (folder / "log").mkdir(exist_ok=True)
    (folder / "log" / "rank0.ring").write_bytes(b"x" * int(os.environ.get("STAND_IN_LOG", "0")))
    attempt = int(sys.argv[3])
    (folder / f"output-{attempt}-0").touch()
    for number, fault in enumerate(cell["faults"]):
        mark = folder / f"fired-{number}"
        if not mark.exists():
            mark.write_text(json.dumps({"t": time.time()}))
            if fault["kind"] in OF_JOBS and os.environ.get("STAND_IN_ASKS", "1") == "1":
                subprocess.Popen(["sleep", str(WAIT_S)], start_new_session=True)
                (folder / f"job-{number}{ASKED}").touch()
                time.sleep(WAIT_S)
    pause = float(os.environ.get("STAND_IN_S", "0")) / LINES
    for rank in range(cell["ranks"]):
        with (folder / "ranks" / f"{rank}.jsonl").open("w", buffering=1) as file:
            for step in range(cell["steps"]):
                line = {"attempt": attempt, "step": step, "loss": "0x1", "ids": [step]}
                file.write(json.dumps(line | {"t": time.time()}) + "\n")
                if step < LINES and not rank:
                    time.sleep(pause)
        bad = cell["mechanism"] in os.environ.get("STAND_IN_BAD", "").split(",")
        (folder / f"final-{rank}").write_text("other" if bad else "same")
    ends = cell["mechanism"] in os.environ.get("STAND_IN_ENDS", "").split(",")
    if ends:
        (folder / "output-0-1").write_text("Traceback\nRuntimeError: connection [reset]\n")
    ended = {
        "action": "gave up" if ends else "done",
        "attempts": max(1 + len(cell["faults"]), 1 + attempt),
    }
    (folder / "launch.json").write_text(json.dumps(ended))


def main() -> None:
    if sys.argv[1] == "job":
        return job(Path(sys.argv[2]))
    from pyft_lab.command import cli
    from pyft_lab.matrix import job as jobs
    from pyft_lab.matrix import tied

    tie = [sys.executable, tied.__file__, str(os.getpid()), sys.executable, __file__, "job"]
    jobs.command = lambda folder, cell, timeout_s, number: [*tie, str(folder), str(number)]
    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    main()
