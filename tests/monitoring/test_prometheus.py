"""Rules, dashboards and expositions under the real Prometheus and its promtool (`make metrics-check`)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from pyasynq import sync
from pyasynq.embedded import EmbeddedServer
from pyasynq.task import Task
from tests.monitoring.service_load import SERVICE_FILE, load_service, open_host
from tests.ports import free_port
from tests.waiting import wait_until
from tools.monitoring.alerts import ALERTS
from tools.monitoring.build import RULE_TESTS, RULES
from tools.monitoring.dashboards import DASHBOARDS
from tools.monitoring.scaling import LOAD

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
SECONDS = 60
LATE = (
    'pyasynq_tasks_finished_total{outcome="archived"}',
    "pyasynq_service_commands_killed_total",
    "pyasynq_service_leases_lapsed_total",
)
"""Series that begin after a while; a rate needs two values of them."""
CONFIG = """
global:
  scrape_interval: 2s
  scrape_timeout: 2s
scrape_configs:
  - job_name: pyasynq
    static_configs:
      - targets: ["127.0.0.1:{queues}", "127.0.0.1:{workers}", "127.0.0.1:{service}"]
"""


def promtool(*arguments: str, text: bytes = b"") -> str:
    """Run promtool; return what it says, and fail if it does."""
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, check=False)
    told = (done.stdout + done.stderr).decode()
    assert 0 == done.returncode, told
    return told


def test_promtool_accepts_the_rules() -> None:
    """Each expression can be parsed."""
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", str(ROOT / RULES))


def test_each_alert_fires_when_it_should_and_not_before() -> None:
    """One case for each of them, on series that promtool plays."""
    assert "SUCCESS" in promtool("test", "rules", str(ROOT / RULE_TESTS))


class Scraped:
    """A Prometheus that has scraped a busy system for a minute."""

    def __init__(self, port: int, *targets: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.targets = targets

    def ask(self, expression: str) -> list[Any]:
        """Return the series of an expression now."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}", timeout=10) as response:
            answer = json.load(response)
        assert "success" == answer["status"], answer
        found: list[Any] = answer["data"]["result"]
        return found


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A Redis, a worker with two processes and a scheduler, a task service, load, and a Prometheus."""
    assert shutil.which("prometheus"), "Prometheus is missing: apt-get install prometheus"
    folder = tmp_path_factory.mktemp("prometheus")
    queues, workers, web, service, host = (free_port() for _ in range(5))
    (folder / "prometheus.yml").write_text(CONFIG.format(queues=queues, workers=workers, service=service))
    (folder / "service.toml").write_text(SERVICE_FILE.format(service=service, host=host, door=free_port()))
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        with redis.Redis.from_url(server.url) as client:
            client.config_set("maxmemory", "512mb")
        environment = {
            **os.environ,
            "PYASYNQ_REDIS_URL": server.url,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }

        def start(*command: str) -> None:
            process = subprocess.Popen(command, env=environment, cwd=folder)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start(sys.executable, "-m", "pyasynq", "metrics", "--port", str(queues), "--host", "127.0.0.1")
        worker = (sys.executable, "-m", "pyasynq", "worker", "tests.monitoring.load:app")
        start(
            *worker,
            *("--processes", "2", "--concurrency", "5", "--metrics", "--with-scheduler", "--quiet-tasks"),
            *("--health-port", str(workers), "--health-host", "127.0.0.1", "--log-level", "error"),
        )
        start(
            *(sys.executable, "-m", "pyasynq", "service", str(folder / "service.toml")),
            *("--no-access-log", "--log-level", "error"),
        )
        start(
            "prometheus",
            *(f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"),
            *(f"--web.listen-address=127.0.0.1:{web}", "--log.level=error"),
        )
        flaky = stack.enter_context(open_host(host))
        stopped = threading.Event()
        threads = [
            threading.Thread(target=flaky.serve_forever),
            threading.Thread(target=load, args=(server.url, stopped)),
            threading.Thread(target=load_service, args=(service, stopped)),
        ]
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(stopped.set)
        stack.callback(flaky.shutdown)
        scraped = Scraped(web, queues, workers, service)
        wait_until(lambda: _is_ready(scraped), "Prometheus has scraped for a minute", seconds=SECONDS * 3)
        yield scraped


def load(url: str, stopped: threading.Event) -> None:
    """Enqueue tasks until it is told to stop."""
    number = 0
    with sync.Client(url) as client:
        while not stopped.wait(0.2):
            mails = [Task("mail:send", b'{"number":%d}' % (number + at), queue="mail") for at in range(20)]
            report = Task("report:make", b'{"number":%d}' % number, queue="reports", max_retry=0)
            client.enqueue_many([*mails, report])
            number += 20 + number % 3


def _is_ready(scraped: Scraped) -> bool:
    try:
        found = scraped.ask(f"count_over_time(up[{SECONDS * 2}s]) * 2")
        late = [bool(scraped.ask(f"count_over_time({name}[1m]) > 1")) for name in LATE]
    except OSError:
        return False
    is_whole = len(found) == len(scraped.targets)
    return is_whole and all(float(one["value"][1]) >= SECONDS for one in found) and all(late)


def expressions() -> list[str]:
    """Return every expression of dashboards, rules and scalers, with the variables of Grafana replaced."""
    found = [condition.expression for alert in ALERTS for condition in alert.conditions]
    found += [line.expression for one in DASHBOARDS for panel in one.panels for line in panel.lines]
    found.append(LOAD.replace('"emails"', '"mail"'))
    replaced = [
        re.sub(r"\$(queue|type|host)\b", ".*", one.replace("$__rate_interval", "1m")) for one in found
    ]
    return list(dict.fromkeys(replaced))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("expression", expressions())
def test_each_expression_returns_data(scraped: Scraped, expression: str) -> None:
    """A name or a label that does not exist would return nothing, and so alert never."""
    assert scraped.ask(expression), f"no data: {expression}"


@pytest.mark.timeout(300)
def test_promtool_accepts_the_expositions(scraped: Scraped) -> None:
    """Except for the names of two gauges, which are Asynq's."""
    for port in scraped.targets:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            body = response.read()
        done = subprocess.run(["promtool", "check", "metrics"], input=body, capture_output=True, check=False)
        told = (done.stdout + done.stderr).decode().splitlines()
        others = [line for line in told if line and not line.startswith("asynq_")]
        assert [] == others
