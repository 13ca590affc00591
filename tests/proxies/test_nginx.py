"""The dashboard behind a real nginx, with each configuration of docs/dashboard.md (`make proxies`)."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest
import redis

from pyasynq.embedded import EmbeddedServer
from tests.fix_tls import Certificates
from tests.link_crawl import Crawl
from tests.ports import HOST, free_port
from tests.shop import fill_shop
from tests.shop_service import (
    announce_commands,
    configure_service,
    first_active,
    make_command,
)
from tests.visiting import form_token, heading_of
from tests.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PREFIX: Final = "/tasks/"
CONFIG: Final = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{ worker_connections 100; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{plain};
    listen 127.0.0.1:{tls} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    {location}
  }}
}}
"""
LOCATIONS: Final = re.findall(
    r"^```nginx\n(.*?)^```", (ROOT / "docs" / "dashboard.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)
"""Configurations on the page: one passes the prefix on, and one strips it."""
DASHBOARDS: Final = {
    "http://app:8000": (
        "uvicorn",
        "tests.proxies.mounted_dashboard:app",
        "--no-proxy-headers",
        "--no-access-log",
    ),
    "http://app:8080/": ("pyasynq", "web", "--no-auth", "admin", "--trust-proxy", "127.0.0.0/8"),
}
"""Arguments of Python that start the dashboard behind each address in a configuration."""


class Front:
    """An nginx in front of a dashboard: its two addresses, and the authority that has signed for the second.

    Attributes:
        plain: the dashboard's address without TLS.
        secure: its address with TLS.
        trust: what a client needs for the second.
    """

    def __init__(self, plain: int, tls: int, authority: str) -> None:
        self.plain = f"http://127.0.0.1:{plain}{PREFIX}"
        self.secure = f"https://127.0.0.1:{tls}{PREFIX}"
        self.trust = ssl.create_default_context(cafile=authority)


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """The URL of a Redis with the data of a shop and of a task service."""
    with EmbeddedServer() as server:
        with redis.Redis.from_url(server.url) as client:
            fill_shop(client, server.url, scale=1_000)
            running_task = first_active(client, "shipping-labels")
        configure_service(server.url)
        announce_commands(server.url, [make_command("shipping-labels", task_id=running_task)])
        yield server.url


@pytest.fixture(scope="module", params=DASHBOARDS, ids=["passes the prefix on", "strips the prefix"])
def front(
    request: pytest.FixtureRequest, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    """Start a dashboard, and nginx with one of the documented configurations in front of it."""
    # Debian keeps it where only root looks.
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is missing: apt-get install nginx")
    [location] = [one for one in LOCATIONS if f"proxy_pass {request.param};" in one]
    folder = tmp_path_factory.mktemp("nginx")
    certificates = Certificates(folder)
    port, plain, tls = (free_port() for _ in range(3))
    upstream = re.sub(r"app:\d+", f"{HOST}:{port}", request.param)
    certificate, key = certificates.server
    (folder / "nginx.conf").write_text(
        CONFIG.format(
            folder=folder,
            plain=plain,
            tls=tls,
            certificate=certificate,
            key=key,
            location=location.replace(request.param, upstream),
        ),
        "utf-8",
    )
    with ExitStack() as stack:
        serve = (sys.executable, "-m", *DASHBOARDS[request.param], "--port", str(port))
        stack.enter_context(running(*serve, redis_url=redis_url))
        wait_until(lambda: listens(port), "the dashboard listens", seconds=2 * PATIENCE)
        stack.enter_context(running(nginx, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"))
        wait_until(lambda: listens(plain), "nginx listens")
        yield Front(plain, tls, certificates.authority)


@contextmanager
def running(*command: str, redis_url: str = "") -> Iterator[None]:
    """Run a program until the end of a block."""
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = {**os.environ, "PYTHONPATH": paths, "PYASYNQ_REDIS_URL": redis_url}
    with subprocess.Popen(command, env=environment, cwd=ROOT) as process:
        try:
            yield
            assert process.poll() is None, f"{command} has ended"
        finally:
            process.kill()


def listens(port: int) -> bool:
    """Return whether a program listens on a port."""
    with suppress(OSError), socket.create_connection((HOST, port)):
        return True
    return False


def test_the_page_has_a_configuration_for_each_dashboard() -> None:
    """None is left untested."""
    assert list(DASHBOARDS) == [re.findall(r"proxy_pass (\S+);", one)[0] for one in LOCATIONS]


def test_every_link_holds_behind_nginx(front: Front) -> None:
    """All pages, styles and modules are loaded; no link leaves the prefix, and none leads nowhere."""
    walk = Crawl(front.plain)
    with httpx.Client(trust_env=False, timeout=PATIENCE) as visitor:
        while walk.todo:
            address = walk.todo.pop()
            walk.read(address, visitor.get(address))
    kinds = {address.removeprefix(front.plain).partition("/")[0] for address in walk.seen}
    assert {"queues", "servers", "schedules", "static", "deliveries", "commands", "task-types"} <= kinds
    assert any("webhooks~2Foutgoing" in address for address in walk.seen)


def test_changes_pass_nginx_at_once(front: Front, redis_url: str) -> None:
    """The stream's second event is much smaller than a buffer of nginx, and the stream has no end."""
    with (
        httpx.Client(base_url=front.plain, trust_env=False, timeout=PATIENCE) as visitor,
        redis.Redis.from_url(redis_url) as client,
        visitor.stream("GET", "live", params={"page": "/queues"}) as stream,
    ):
        assert (200, "text/event-stream; charset=utf-8") == (
            stream.status_code,
            stream.headers["content-type"],
        )
        lines = stream.iter_lines()
        assert any(line.startswith("event: ") for line in lines)
        client.sadd("asynq:queues", "one-more")
        try:
            assert any("one-more" in line for line in lines)
        finally:
            client.srem("asynq:queues", "one-more")


@pytest.mark.parametrize("is_secure", [False, True], ids=["HTTP", "HTTPS"])
def test_a_form_posts_behind_nginx(front: Front, redis_url: str, *, is_secure: bool) -> None:
    """A browser without TLS sends no `Sec-Fetch-Site`: the host with its port decides.

    The answer leads back under the prefix, and its cookie is secure where the browser's connection is.
    """
    address = front.secure if is_secure else front.plain
    origin = address.removesuffix(PREFIX)
    with (
        httpx.Client(base_url=address, verify=front.trust, trust_env=False, timeout=PATIENCE) as visitor,
        redis.Redis.from_url(redis_url) as client,
    ):
        token = form_token(visitor.get("queues/emails/pause").text)
        fields = {"csrf": token, "seconds": ""}
        answer = visitor.post("queues/emails/pause", data=fields, headers={"Origin": origin})
        assert 303 == answer.status_code
        there = answer.request.url.join(answer.headers["location"])
        assert f"{address}queues/emails" == str(there)
        assert client.delete("asynq:{emails}:paused")
        assert is_secure == ("; secure" in answer.headers["set-cookie"].lower())
        assert "emails" == heading_of(visitor.get(there))
