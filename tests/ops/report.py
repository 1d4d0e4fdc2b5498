"""Reads the results of run.py and prints them as tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

Result = dict[str, Any]
# In the order in which a library is looked for in the name of a refused call.
LIBRARIES = {
    "cusolver": "cuSOLVER",
    "cusparse": "cuSPARSE",
    "cufft": "cuFFT",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "magma": "MAGMA",
}


def read(path: Path) -> dict[str, Result]:
    """Return the last result of each operator."""
    if not path.exists():
        return {}
    results: dict[str, Result] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        results[entry.pop("op")] = entry
    return results


def library(result: Result) -> str:
    """Name the library that an unsupported operator needs."""
    call = result.get("library", "").lower()
    return next((name for part, name in LIBRARIES.items() if part in call), call or "?")


def ours(result: Result) -> bool:
    """Tell whether a refused call is of a library that the soft GPU means to have."""
    return library(result) in ("cuBLAS", "?")


def share(passed: int, failed: int) -> str:
    return f"{100 * passed / (passed + failed):.1f} %" if passed + failed else "-"


def table(folder: Path) -> str:
    """Return the summary of all types as Markdown, then what failed and what is unsupported.

    Failures by rounding are among the failed ones. The share leaves out what needs libraries that the soft GPU does not have; a cuBLAS call that is
    refused counts as failed.
    """
    lines = [
        "| type | passed | failed | by rounding | unsupported | excluded | share that passes |",
        "|---|---|---|---|---|---|---|",
    ]
    details: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        results = read(path)
        count = Counter(r["status"] for r in results.values())
        refused = sum(r["status"] == "unsupported" and ours(r) for r in results.values())
        rounded = sum(bool(r.get("rounding")) for r in results.values())
        lines.append(
            f"| {path.stem} | {count['passed']} | {count['failed']} | {rounded} "
            f"| {count['unsupported']} | {count['excluded']} | {share(count['passed'], count['failed'] + refused)} |"
        )
        needs = Counter(library(r) for r in results.values() if r["status"] == "unsupported")
        if needs:
            listed = ", ".join(f"{name} {n}" for name, n in needs.most_common())
            details.append(f"{path.stem}, unsupported: {listed}")
        details += [
            f"{path.stem}, failed: {op}: {r.get('reason', '')[:160]}"
            for op, r in sorted(results.items())
            if r["status"] == "failed"
        ]
    return "\n".join([*lines, "", *details])
