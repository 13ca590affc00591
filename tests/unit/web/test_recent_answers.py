"""Answers that pages share: how long they are kept, and when an old one is shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.operations import User
from pyasynq.web import targets
from pyasynq.web.targets import Target

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

USER = User("mira")


class Clock:
    """The monotonic clock of the cache."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        """Return the time that the test has set."""
        return self.now


class Source:
    """Answers that a test gives."""

    def __init__(self) -> None:
        self.pending: list[asyncio.Future[str]] = []
        self.asked = asyncio.Event()
        self.answered = asyncio.Event()

    async def ask(self) -> str:
        """Return what the test answers to this question."""
        self.pending.append(asyncio.get_running_loop().create_future())
        self.answered.clear()
        self.asked.set()
        try:
            return await self.pending[-1]
        finally:
            self.answered.set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the cache, and let viewers wait for a new answer no time at all."""
    clock = Clock()
    monkeypatch.setattr(targets, "time", clock)
    monkeypatch.setattr(targets, "_PATIENCE", 0.0)
    return clock


@pytest.fixture
def target() -> Target:
    """Return a target without connections."""
    settings: Any = None
    return Target("", "redis://nowhere", settings)


async def _answer(target: Target, source: Source, text: str) -> str:
    """Ask, answer at once, and return what the viewer gets."""
    source.asked.clear()
    viewer = asyncio.ensure_future(target.recent(USER, "queues", source.ask))
    await source.asked.wait()
    source.pending[-1].set_result(text)
    return await viewer


async def test_an_answer_is_shared_while_it_is_fresh(clock: Clock, target: Target) -> None:
    """The source is asked once."""
    source = Source()
    assert "a" == await _answer(target, source, "a")
    clock.now += 1.9
    assert "a" == await target.recent(USER, "queues", source.ask)
    assert 1 == len(source.pending)


async def test_an_old_answer_is_shown_while_a_new_one_takes_long(clock: Clock, target: Target) -> None:
    """The new one is there for the next viewer."""
    source = Source()
    await _answer(target, source, "old")
    clock.now += 10
    assert "old" == await target.recent(USER, "queues", source.ask)
    assert "old" == await target.recent(USER, "queues", source.ask)
    assert 2 == len(source.pending), "it is asked for once"
    source.pending[-1].set_result("new")
    await source.answered.wait()
    assert "new" == await target.recent(USER, "queues", source.ask)


async def test_closing_ends_the_computation_of_an_answer_without_a_viewer(
    clock: Clock, target: Target
) -> None:
    """A later viewer gets a new answer."""
    source = Source()
    await _answer(target, source, "old")
    clock.now += 10
    assert "old" == await target.recent(USER, "queues", source.ask)
    await target.close()
    assert source.pending[-1].cancelled()
    assert "new" == await _answer(target, source, "new")


def _grow_old(clock: Clock, target: Target) -> None:
    clock.now += 33


def _change(clock: Clock, target: Target) -> None:
    clock.now += 3
    target.expect_change()


@pytest.mark.parametrize("spoil", [_grow_old, _change])
async def test_an_answer_that_may_mislead_is_not_shown(
    clock: Clock, target: Target, spoil: Callable[[Clock, Target], None]
) -> None:
    """It is too old, or somebody has changed something since."""
    source = Source()
    await _answer(target, source, "old")
    spoil(clock, target)
    assert "new" == await _answer(target, source, "new")


async def test_an_answer_from_the_time_of_a_change_is_shown_only_while_it_is_fresh(
    clock: Clock, target: Target
) -> None:
    """The change may have come after it was read."""
    source = Source()
    target.expect_change()
    clock.now += 1
    await _answer(target, source, "during")
    clock.now += 10
    assert "after" == await _answer(target, source, "after")
    clock.now += 10
    assert "after" == await target.recent(USER, "queues", source.ask)


async def test_an_error_is_raised_although_an_old_answer_is_there(clock: Clock, target: Target) -> None:
    """A page must not hide that Redis is away."""
    source = Source()
    await _answer(target, source, "old")
    clock.now += 10
    assert "old" == await target.recent(USER, "queues", source.ask)
    source.pending[-1].set_exception(ConnectionError("away"))
    await source.answered.wait()
    with pytest.raises(ConnectionError):
        await target.recent(USER, "queues", source.ask)


async def test_an_error_is_forgotten_soon_although_it_took_long(clock: Clock, target: Target) -> None:
    """Redis was away for ten seconds; its answer is wanted as soon as it is back."""
    source = Source()
    viewer = asyncio.ensure_future(target.recent(USER, "queues", source.ask))
    await source.asked.wait()
    clock.now += 10
    source.pending[-1].set_exception(ConnectionError("away"))
    with pytest.raises(ConnectionError):
        await viewer
    clock.now += 2.1
    assert "back" == await _answer(target, source, "back")


async def _answer_slowly(clock: Clock, target: Target, source: Source, text: str) -> None:
    """Answer after four seconds, and wait until the answer is stored."""
    source.asked.clear()
    viewer = asyncio.ensure_future(target.recent(USER, "queues", source.ask))
    await source.asked.wait()
    clock.now += 4
    source.pending[-1].set_result(text)
    await source.answered.wait()
    await viewer


async def test_one_slow_answer_among_fast_ones_is_kept_no_longer(clock: Clock, target: Target) -> None:
    """It waited while Redis restarted; two slow answers in a row are work of Redis."""
    source = Source()
    await _answer(target, source, "fast")
    clock.now += 60
    await _answer_slowly(clock, target, source, "slow")
    clock.now += 2.1
    await _answer_slowly(clock, target, source, "slow again")
    clock.now += 2.1
    assert "slow again" == await target.recent(USER, "queues", source.ask)
    assert 3 == len(source.pending)
