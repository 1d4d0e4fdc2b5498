"""The Grafana board and the alert rules ask for what /metrics has, in a real Prometheus as well."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job import Job, wait_for
from ranks import free_port

from pyft.agent.channel import page
from pyft.agent.operators import metrics

OPERATE = Path(__file__).resolve().parents[3] / "docs" / "operate"
RULES = OPERATE / "alerts.yml"
BOARD = json.loads((OPERATE / "board.json").read_text())
PROMETHEUS = shutil.which("prometheus")
NAME = re.compile(r"\bpyft_[a-z_]+")
OF_THE_JOB = {"pyft_faults_total", "pyft_recoveries_total", "pyft_given_up_total"}
OF_THE_JOB |= {"pyft_lost_seconds_total", "pyft_agent_restarts_total", "pyft_goodput"}
OF_THE_JOB |= {"pyft_epoch", "pyft_gpus_lost", "pyft_gpu_strikes"}
KNOWN = OF_THE_JOB | set(metrics._MEANINGS) | {f"pyft_store_{name}" for name in page.FIGURES}


def board_queries() -> list[str]:
    found = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    return [query.replace("$job", ".*") for query in found]


def test_the_metrics_of_the_job_are_those_of_the_page() -> None:
    text = (OPERATE / "metrics.md").read_text().split("## Of a rank")[0]
    assert set(NAME.findall(text.split("## Of the job")[1])) == OF_THE_JOB


def test_everything_asks_for_metrics_that_there_are() -> None:
    asked = set(NAME.findall(" ".join(board_queries())))
    asked |= set(NAME.findall(" ".join(re.findall(r"expr: (.*)", RULES.read_text()))))
    assert asked <= KNOWN
    assert len(asked) >= 10


def test_the_board_is_one_that_grafana_takes() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert {one["name"] for one in BOARD["templating"]["list"]} == {"datasource", "job"}
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken  # no two lie on each other
        taken |= cells
        assert panel["title"]
        assert panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[int]:
    """A job that computes nothing, and the port of its /metrics."""
    port = free_port()
    job = Job(tmp_path, ["sleep", "600"], options=("--gpus", "soft:1", "--metrics-port", str(port)))
    yield port
    job.kill_everything()


def ask(port: int, path: str, **values: str) -> Any:
    """Return what Prometheus answers; None as long as it does not."""
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(values)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def values_of(port: int, query: str) -> list[Any]:
    found = ask(port, "query", query=query)
    return found["result"] if found else []


@pytest.fixture
def prometheus(tmp_path: Path, job: int, need: Callable[..., None]) -> Iterator[int]:
    """A real Prometheus that scrapes the job and has our rules; its port."""
    need("prometheus", PROMETHEUS is not None, "the Debian package prometheus is not installed")
    port = free_port()
    scrape = {"job_name": "pyft", "static_configs": [{"targets": [f"127.0.0.1:{job}"]}]}
    config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}}
    config |= {"scrape_configs": [scrape], "rule_files": [str(RULES)]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    words = [
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'd'}",
    ]
    words += [f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([str(PROMETHEUS), *words], stdout=log, stderr=log)
    yield port
    process.terminate()
    process.wait(60)


def test_a_real_prometheus(prometheus: int) -> None:
    wait_for(lambda: values_of(prometheus, "pyft_goodput"), 180, "it has scraped the job")
    (found,) = values_of(prometheus, "pyft_goodput")
    assert found["value"][1] == "1"
    for query in board_queries():
        assert ask(prometheus, "query", query=query) is not None, query

    def rules() -> list[dict[str, Any]]:
        groups = (ask(prometheus, "rules") or {"groups": []})["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_for(lambda: rules() and all(r["health"] != "unknown" for r in rules()), 180, "rules ran")
    assert {rule["health"] for rule in rules()} == {"ok"}
    assert len(rules()) == RULES.read_text().count("- alert:")
