"""The command `pyasynq web`: what it serves, and what it refuses."""

from __future__ import annotations

import asyncio
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from click.testing import CliRunner

from pyasynq.cli.commands import main
from pyasynq.web import CredentialsFile
from tests.factories import Tasks
from tests.openid_provider import serve_provider
from tests.ports import free_port
from tests.visiting import ABROAD, visiting
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyasynq.web import Dashboard
    from tests.invariants import RedisClient


def run(*arguments: str, text: str = "") -> tuple[int, str]:
    """Run a command; return its exit code and everything that it printed."""
    result = CliRunner().invoke(main, ["web", *arguments], input=text)
    return result.exit_code, result.output


def is_up(port: int, path: str = "") -> bool:
    """Return whether a dashboard answers at this port of this machine."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/{path}").status_code == 200
    except httpx.TransportError:
        return False


def test_it_serves_the_dashboard_until_it_is_stopped(redis_url: str) -> None:
    """At the address that it prints, below a prefix if it is given; INT ends it cleanly, streams included."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "pyasynq",
        "web",
        "--redis",
        redis_url,
        "--port",
        str(port),
        "--prefix",
        "/tasks",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert f"http://127.0.0.1:{port}/tasks/" in process.stderr.readline()

        wait_until(lambda: is_up(port, "tasks/"))
        with httpx.stream("GET", f"http://127.0.0.1:{port}/tasks/live?page=/") as stream:
            assert "text/event-stream; charset=utf-8" == stream.headers["content-type"]
            process.send_signal(signal.SIGINT)
            assert 0 == process.wait(20)


def test_a_public_address_without_sign_in_is_refused_with_ways_to_mend_that(redis_url: str) -> None:
    """Nothing is served meanwhile."""
    code, output = run("--redis", redis_url, "--host", "0.0.0.0")
    assert 2 == code
    for way in ("--auth people", "--oidc-issuer URL", "--proxy 10.0.0.0/8", "--no-auth viewer"):
        assert way in output


def test_people_sign_in_at_the_provider_that_the_options_name(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option reaches the dashboard; the secret is never an option."""
    served: list[Dashboard] = []
    monkeypatch.setattr("pyasynq.cli.web._serve", lambda site, _: served.append(site))
    monkeypatch.setenv("PYASYNQ_OIDC_SECRET", "of the client")
    with serve_provider() as provider:
        options = ["--redis", redis_url, "--oidc-issuer", provider.issuer, "--oidc-client-id", "pyasynq"]
        options += ["--oidc-role", "cn=ops,dc=example=operator", "--oidc-queues", "cn=ops,dc=example=team-*"]
        options += ["--oidc-queues", "cn=ops,dc=example=mail", "--oidc-scope", "groups"]
        options += ["--oidc-groups-claim", "member", "--oidc-user-claim", "upn", "--oidc-name", "Corp"]
        assert (0, "") == run(*options, "--port", "8081", "--prefix", "/tasks/")
        assert (0, "") == run(*options, "--host", "0.0.0.0", "--oidc-url", "https://ops.example/")
        provider.claims = {"upn": "mira", "member": ["cn=ops,dc=example"]}

        async def sign_in(site: Dashboard, own: str) -> tuple[dict[str, Any], str]:
            async with visiting(site, client=ABROAD, base=own) as visitor:
                assert "Sign in with Corp" in (await visitor.get("login")).text
                begun = (await visitor.get("login/oidc")).headers["location"]
                await visitor.get("login/oidc/callback?" + urlsplit(provider.approve(begun)).query)
                return (await visitor.get("api/v1/me")).json(), begun

        for site, own in zip(served, ("http://127.0.0.1:8081/tasks", "https://ops.example"), strict=True):
            me, begun = asyncio.run(sign_in(site, f"{own.removesuffix('/tasks')}/"))
            assert ("mira", "operator", ["team-*", "mail"]) == (
                me["user"],
                me["role"],
                me["permissions"]["tasks.view"],
            )
            asked = dict(parse_qsl(urlsplit(begun).query))
            assert (f"{own}/login/oidc/callback", "openid groups") == (asked["redirect_uri"], asked["scope"])
        assert provider.authorization.startswith("Basic ")


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ((), "--oidc-client-id"),
        (("--oidc-client-id", "x"), "--oidc-role"),
        (("--oidc-client-id", "x", "--oidc-role", "ops"), "GROUP=VALUE"),
        (("--oidc-client-id", "x", "--oidc-role", "ops=viewer", "--host", "0.0.0.0"), "--oidc-url"),
        (("--oidc-client-id", "x", "--oidc-role", "ops=viewer", "--port", "0"), "--oidc-url"),
    ],
)
def test_a_provider_needs_its_other_options(options: tuple[str, ...], missing: str) -> None:
    """Which are named before Redis is asked."""
    code, output = run("--oidc-issuer", "https://login.example", *options)
    assert (2, True) == (code, missing in output)


def test_a_wrong_network_of_a_trusted_proxy_is_refused(redis_url: str) -> None:
    """The option reaches the dashboard."""
    code, output = run("--redis", redis_url, "--trust-proxy", "the proxy")
    assert 1 == code
    assert "trusted_proxies" in output


@pytest.mark.usefixtures("impatient")
def test_without_a_redis_it_names_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5, as every command whose Redis does not answer."""
    monkeypatch.delenv("PYASYNQ_REDIS_URL", raising=False)
    monkeypatch.setattr("pyasynq.cli.web._DEFAULT_URL", "redis://127.0.0.1:1/0")
    code, output = run()
    assert (5, True) == (code, "look around with --demo" in output)


@pytest.mark.usefixtures("impatient")
def test_flags_and_variables_of_asynqmon_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes win over URL, and URL over address."""
    for variable, value in {"REDIS_ADDR": "127.0.0.1:1", "REDIS_DB": "3", "REDIS_PASSWORD": "p@ss"}.items():
        monkeypatch.setenv(variable, value)
    code, output = run()
    assert (5, True, False) == (code, "127.0.0.1:1" in output, "p@ss" in output)
    assert "127.0.0.1:2" in run("--redis-url", "redis://127.0.0.1:2")[1]


def test_a_password_is_written_and_changed(tmp_path: Path) -> None:
    """The file holds a hash, and only its owner may read it."""
    file = tmp_path / "people"
    for password in ("first password", "second password"):
        code, _ = run("passwd", "mira", "--auth", str(file), "--role", "operator", text=f"{password}\n")
        assert 0 == code
    assert 1 == len(file.read_text().splitlines())
    assert stat.S_IRUSR | stat.S_IWUSR == stat.S_IMODE(file.stat().st_mode)
    people = CredentialsFile(file)
    assert people.check_password("mira", "first password") is None
    assert people.check_password("mira", "second password") is not None
    assert 2 == run("passwd", "mira", "--auth", str(file), text="short\n")[0]


def test_a_token_is_shown_once_and_stored_as_a_hash(tmp_path: Path) -> None:
    """It can be checked, and not be read back."""
    file = tmp_path / "people"
    code, output = run("token", "ci", "--auth", str(file), "--days", "1")
    token = output.splitlines()[-1]
    assert (0, True) == (code, token.startswith("pyasynq_"))
    assert token not in file.read_text()
    assert CredentialsFile(file).check_token(token) is not None


OWN_APP: Final = """
from dataclasses import replace
from pyasynq import App

app = App({url!r})

@app.task("label.print", queue="labels")
async def print_label(order: int) -> None:
    "Print the label of an order."

def redact(task):
    return replace(task, payload=b'"hidden by redact"') if task.id == "hidden" else None

def show(task_type, data):
    return data.hex(":") if data.startswith(b"\\x00") else None
"""


def test_an_app_brings_its_redis_its_types_and_its_functions(
    redis_url: str, redis_client: RedisClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL is that of the app, unless another is given."""
    (tmp_path / "own_app.py").write_text(OWN_APP.format(url=redis_url), "utf-8")
    labels = Tasks(redis_client, "labels")
    labels.pending("hidden", payload=b'{"name":"Ada Lovelace"}')
    labels.pending("packed", payload=b"\x00\x01\xff")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYASYNQ_REDIS_URL", raising=False)
    port = free_port()
    code = ["--app", "own_app:app", "--redact", "own_app:redact", "--show", "own_app:show"]
    command = [sys.executable, "-m", "pyasynq", "web", "--port", str(port), *code]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert "The dashboard is at" in process.stderr.readline()

            def read(path: str) -> str:
                return httpx.get(f"http://127.0.0.1:{port}/{path}").text

            wait_until(lambda: is_up(port))
            assert 'name="p:order"' in read("enqueue?type=label.print")
            hidden = read("queues/labels/tasks/hidden")
            assert ("hidden by redact" in hidden, "Lovelace" in hidden) == (True, False)
            assert "00:01:ff" in read("queues/labels/tasks/packed")
        finally:
            process.send_signal(signal.SIGINT)


@pytest.mark.parametrize("option", ["--app", "--redact", "--show"])
def test_code_that_is_not_found_is_named(redis_url: str, option: str) -> None:
    """Nothing is served without it: secrets would be shown."""
    code, output = run("--redis", redis_url, option, "tests.shop:no_such_name")

    assert 1 == code
    assert "no_such_name" in output
