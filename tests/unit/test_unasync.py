from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

import pyasynq.client
import pyasynq.sync.client
from tools import unasync

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("name", "twin"), unasync.TWINS.items())
def test_the_generated_twins_are_current(name: str, twin: str) -> None:
    """Fails after a change of the asyncio source without `make sync`."""
    assert unasync.twin(name) == (unasync.SOURCE / twin).read_text("utf-8")


def test_a_stale_twin_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`--check` fails and writes nothing; without it the twin is written, and then it is current."""
    monkeypatch.setattr(unasync, "SOURCE", tmp_path)
    monkeypatch.setattr(unasync, "TWINS", {"door.py": "twin.py"})
    (tmp_path / "door.py").write_text("async def go() -> None:\n    await wait()\n", "utf-8")
    assert 1 == unasync.main(["--check"])
    assert not (tmp_path / "twin.py").exists()
    assert 0 == unasync.main([])
    assert "def go() -> None:\n    wait()\n" in (tmp_path / "twin.py").read_text("utf-8")
    assert 0 == unasync.main(["--check"])


def test_nothing_waits_in_the_blocking_client() -> None:
    """No function of it is a coroutine, and its docstrings speak of none."""
    source = inspect.getsource(pyasynq.sync.client)
    assert "async def" not in source
    assert "await " not in source
    assert not any(
        inspect.iscoroutinefunction(member) for _, member in inspect.getmembers(pyasynq.sync.client.Client)
    )


def test_both_clients_offer_the_same() -> None:
    """Same methods and same arguments, except for the words of context managers."""

    def offers(client: type) -> dict[str, list[str]]:
        return {
            name.replace("__a", "__"): list(inspect.signature(member).parameters)
            for name, member in vars(client).items()
            if inspect.isfunction(member)
        }

    assert offers(pyasynq.client.Client) == offers(pyasynq.sync.client.Client)
