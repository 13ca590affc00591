"""The command `pyasynq service`: its checks, refusals and end; and the commands of its page."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from click.testing import CliRunner

from pyasynq.cli.commands import main
from pyasynq.operations import User
from pyasynq.operations import sync as blocking
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "service" / "service.toml"
PAGE = (ROOT / "docs" / "service.md").read_text("utf-8")


def run(*arguments: str) -> tuple[int, str]:
    """Run the command in this process; return its exit code and everything that it printed."""
    # A process that ends ignores signals; this one goes on.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        result = CliRunner().invoke(main, ["service", *arguments])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return result.exit_code, result.output


def write_file(folder: Path, listen: str, more: str = "", redis: str = "redis://127.0.0.1:1/0") -> str:
    """Write a file of the service; return its name."""
    file = folder / "service.toml"
    settings = f'[service]\nredis = "{redis}"\nlisten = "{listen}"\n{more}\n'
    file.write_text(f"{settings}[tasks.resize]\nmax_run = 2\n", "utf-8")
    return str(file)


@contextmanager
def running(*arguments: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run the service in a process of its own until the end of a block."""
    log = [] if "--log-format" in " ".join(arguments) else ["--no-logging"]
    command = [sys.executable, "-m", "pyasynq", "service", *arguments, *log]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: is_ready(port) or process.poll() is not None)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def is_ready(port: int) -> bool:
    """Return whether a service answers at this port of this machine."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_the_example_is_right() -> None:
    """`--check` says so, and needs no Redis."""
    code, output = run(str(EXAMPLE), "--check")
    assert (0, True) == (code, "4 task types, on http://127.0.0.1:8080" in output)


@pytest.mark.parametrize(
    ("listen", "more", "place"),
    [
        ("127.0.0.1:8080", "max_bdoy = 5", "service.max_bdoy"),
        ("0.0.0.0:8080", "keys = false", "service.keys"),
        ("nowhere", "", "service.listen"),
        ("0.0.0.0:8080", "dashboard = true", "service.dashboard"),
        ("127.0.0.1:8080", "dashboard = 1", "service.dashboard"),
        ("127.0.0.1:8080", 'people = "no-such-file"', "no-such-file"),
        ("127.0.0.1:8080", 'drain = "1d"', "service.drain"),
        ("127.0.0.1:8080", 'health = "9090"', "service.health"),
    ],
)
def test_a_wrong_file_is_told_with_its_place(tmp_path: Path, listen: str, more: str, place: str) -> None:
    """Exit code 1; a public address cannot do without keys."""
    code, output = run(write_file(tmp_path, listen, more), "--check")
    assert (1, True) == (code, place in output)


def test_a_public_address_without_keys_is_refused(tmp_path: Path, redis_url: str) -> None:
    """With the command that makes the first one; an expired one does not count."""
    file = write_file(tmp_path, "0.0.0.0:0", redis=redis_url)
    code, output = run(file)
    assert (1, True) == (code, "pyasynq key make admin --scope admin" in output)


@pytest.mark.usefixtures("impatient")
def test_without_redis_it_does_not_start(tmp_path: Path) -> None:
    """Exit code 5, as every command whose Redis does not answer."""
    code, output = run(write_file(tmp_path, "127.0.0.1:0"))
    assert (5, True) == (code, "127.0.0.1:1" in output)


def test_it_serves_with_keys_until_it_is_stopped(tmp_path: Path, redis_url: str) -> None:
    """TERM ends it cleanly."""
    port = free_port()
    with blocking.Operator(redis_url, User.with_role("root", "admin")) as operator:
        key = operator.make_api_key("all", ["tasks:write"]).text
    tasks = f"http://127.0.0.1:{port}/v1/tasks"
    file = write_file(tmp_path, f"127.0.0.1:{port}", "keys = true", redis_url)
    with running(file, port=port) as process:
        refused = httpx.post(tasks, json={"type": "resize"})
        made = httpx.post(tasks, json={"type": "resize"}, headers={"authorization": f"Bearer {key}"})
        assert (401, 201) == (refused.status_code, made.status_code)
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(20)


@pytest.mark.skipif(shutil.which("curl") is None, reason="only on machines with curl")
def test_the_commands_of_the_page_do_what_it_prints(tmp_path: Path) -> None:
    """All of them in one shell, in their order, on the example."""
    port = free_port()
    text = EXAMPLE.read_text("utf-8")
    assert "127.0.0.1:8080" in text
    blocks = re.findall(r"```console\n(.*?)```", PAGE.partition("## The file")[0], re.DOTALL)
    steps = [step for block in blocks for step in split_steps(block)]
    shutil.copytree(EXAMPLE.parent, tmp_path, dirs_exist_ok=True)
    file = tmp_path / EXAMPLE.name
    file.write_text(text.replace("127.0.0.1:8080", f"127.0.0.1:{port}"), "utf-8")
    with running(str(file), port=port):
        script = "".join(f"{command}\necho; echo @@@\n" for command, _ in steps)
        script = script.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    outputs = ran.stdout.split("@@@\n")
    assert len(steps) >= 10
    for (command, expected), output in zip(steps, outputs, strict=False):
        pattern = ".*".join(map(re.escape, expected.strip().split("...")))
        assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"{command}\nprinted\n{output}"


def split_steps(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block, each with what it prints."""
    steps = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        last = next(at for at, line in enumerate(lines) if not line.endswith("\\"))
        steps.append(("\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])))
    return steps
