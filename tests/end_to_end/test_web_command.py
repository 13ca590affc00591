"""The command `pyasynq web`: what it serves, and what it refuses."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner

from pyasynq.cli.commands import main
from pyasynq.web import CredentialsFile
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str, text: str = "") -> tuple[int, str]:
    """Run a command; return its exit code and everything that it printed."""
    result = CliRunner().invoke(main, ["web", *arguments], input=text)
    return result.exit_code, result.output


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

        def is_up() -> bool:
            try:
                return httpx.get(f"http://127.0.0.1:{port}/tasks/").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(is_up)
        with httpx.stream("GET", f"http://127.0.0.1:{port}/tasks/live?page=/") as stream:
            assert "text/event-stream; charset=utf-8" == stream.headers["content-type"]
            process.send_signal(signal.SIGINT)
            assert 0 == process.wait(20)


def test_a_public_address_without_sign_in_is_refused_with_three_ways(redis_url: str) -> None:
    """Nothing is served meanwhile."""
    code, output = run("--redis", redis_url, "--host", "0.0.0.0")
    assert 2 == code
    for way in ("--auth people", "--proxy 10.0.0.0/8", "--no-auth viewer"):
        assert way in output


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
