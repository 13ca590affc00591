"""Calling a handler directly, with a context that records."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from pyasynq import App, context
from pyasynq.errors import InvalidOptionError, ServerStateError, TaskCanceledError
from pyasynq.testing import task_context

app = App("redis://localhost:1/0")


@app.task("coroutine")
async def coroutine(number: int) -> str:
    """Use all of the context."""
    its = context()
    await its.write_result(b"%d" % number)
    return f"{its.task_id} {its.task_type} {its.queue} {its.retried}/{its.max_retry} {its.state}"


@app.task("plain")
def plain(number: int) -> bool:
    """Write from a plain handler, and see whether it is cancelled."""
    context().write_result_sync(b"%d" % number)
    context().progress(number, 10, "on the way")
    return context().cancelled.wait(0)


def test_a_coroutine_is_called_as_the_function_that_it_is() -> None:
    """And finds what the test has put into its context."""
    with task_context(
        task_id="id", type="t", queue="q", retried=1, max_retry=3, headers={"a": "b"}, state="pool"
    ) as recorded:
        assert "id t q 1/3 pool" == asyncio.run(coroutine(7))
        assert {"a": "b"} == context().headers
        assert context().deadline is None
    assert b"7" == recorded.result


def test_the_wait_is_what_the_test_says() -> None:
    """None unless it says something."""
    with task_context(waited=1.5):
        assert 1.5 == context().waited
    with task_context():
        assert context().waited is None


def test_a_plain_handler_is_called_as_the_function_that_it_is() -> None:
    """No event loop is needed."""
    with task_context() as recorded:
        assert plain(1) is False
        recorded.cancel()
        assert plain(2) is True
    assert b"2" == recorded.result
    assert (2, 10, "on the way") == recorded.progress


def test_a_cancelled_context_tells_those_who_wait() -> None:
    """The cause is that of a real one, unless another is given."""
    with task_context() as recorded:
        waiting = threading.Thread(target=context().cancelled.wait)
        waiting.start()
        recorded.cancel()
        waiting.join(5)
        assert not waiting.is_alive()
        assert isinstance(context()._task.cause, TaskCanceledError)


def test_contexts_may_be_within_one_another() -> None:
    """The inner one counts, and the outer one again after it."""
    with task_context(task_id="outer"):
        with task_context(task_id="inner"):
            assert "inner" == context().task_id
        assert "outer" == context().task_id
    with pytest.raises(ServerStateError):
        context()


def test_a_deadline_is_shown() -> None:
    """The deadline is an aware datetime, and a naive one is an error."""
    due = datetime(2040, 1, 1, tzinfo=UTC)
    with task_context(deadline=due):
        assert due == context().deadline
    with pytest.raises(InvalidOptionError, match="deadline="), task_context(deadline=datetime(2040, 1, 1)):  # noqa: DTZ001 - it is the mistake
        pass


def test_a_call_without_a_context_says_how_to_get_one() -> None:
    """Both ways: with a worker's surroundings, and without."""
    with pytest.raises(ServerStateError, match=r"perform\(\).*task_context\(\)"):
        asyncio.run(coroutine(1))
