"""Asserting what is enqueued, and what a failed assertion says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import pytest

from pyasynq import App, Task
from pyasynq.errors import ArgumentsError, InvalidOptionError
from pyasynq.task import TaskState
from tests.fix_kit import make_app, sound_kit

MONDAY = datetime(2040, 1, 2, 8, tzinfo=UTC)
app: App = make_app()


@app.task("email:deliver", queue="critical")
def deliver(user_id: int, template: str = "welcome", at: datetime | None = None) -> None:
    """Run never, or without an effect."""


@app.task("odd")
def odd(queue: str, count: int) -> None:
    """Have arguments that are named as options are."""


def test_what_is_named_must_be_as_it_is_named() -> None:
    """Arguments by name and by position, options, times; what is not named may be anything."""
    with sound_kit(app, start=MONDAY) as kit:
        handle = deliver.enqueue_sync(42, at=MONDAY)
        deliver.options(process_in=60, headers={"tenant": "t1", "trace": "x"}, max_retry=1).enqueue_sync(7)

        assert handle.id == kit.assert_enqueued(deliver, user_id=42, queue="critical").id
        kit.assert_enqueued(deliver, 42, "welcome")
        kit.assert_enqueued(deliver, at=MONDAY, state="pending")
        kit.assert_enqueued(deliver, user_id=ANY, count=2)
        kit.assert_enqueued(deliver, process_in=60, headers={"tenant": "t1"}, max_retry=1)
        kit.assert_enqueued(deliver, process_at=MONDAY + timedelta(minutes=1), state=TaskState.SCHEDULED)
        kit.assert_enqueued("email:deliver", payload={"user_id": 7})
        kit.assert_enqueued("email:deliver", payload=b'{"user_id":7,"template":"welcome","at":null}')
        kit.assert_enqueued(deliver.task(user_id=7))
        kit.assert_enqueued(count=2)
        assert [42, 7] == [one.arguments["user_id"] for one in kit.enqueued(deliver) if one.arguments]
        assert {"template": "welcome", "user_id": 7, "at": None} == kit.enqueued(deliver, 7)[0].json()


def test_arguments_with_the_names_of_options_have_a_place_of_their_own() -> None:
    """Otherwise `queue=` would mean two things."""
    with sound_kit(app) as kit:
        odd.enqueue_sync("a", 3)
        kit.assert_enqueued(odd, args={"queue": "a", "count": 3}, queue="default", count=1)
        kit.refute_enqueued(odd, args={"queue": "b"})


def test_a_failure_shows_what_is_most_like_it_and_how_it_differs() -> None:
    """Tasks of the same type are shown, the most similar first."""
    with sound_kit(app, start=MONDAY) as kit:
        deliver.enqueue_sync(41, "goodbye")
        deliver.enqueue_sync(42, "goodbye")
        with pytest.raises(AssertionError) as failed:
            kit.assert_enqueued(deliver, user_id=42, template="welcome", queue="critical")

    assert [
        "not enqueued: email:deliver(user_id=42, template='welcome'), queue 'critical'",
        "  not email:deliver(user_id=42, template='goodbye', at=None), queue 'critical', pending",
        "      template is 'goodbye', not 'welcome'",
        "  not email:deliver(user_id=41, template='goodbye', at=None), queue 'critical', pending",
        "      user_id is 41, not 42",
        "      template is 'goodbye', not 'welcome'",
    ] == str(failed.value).splitlines()


def test_a_failure_shows_what_is_there_instead() -> None:
    """Nothing, or other types, with the one that may have been meant."""
    with sound_kit(app) as kit:
        with pytest.raises(AssertionError, match="nothing is enqueued"):
            kit.assert_enqueued(deliver)
        app.enqueue_sync("email:delivered")
        with pytest.raises(AssertionError, match="did you mean 'email:delivered'"):
            kit.assert_enqueued(deliver)


def test_a_failure_tells_that_the_task_has_run_already() -> None:
    """The most likely reason, after a drain."""
    with sound_kit(app, start=MONDAY) as kit:
        deliver.enqueue_sync(1)
        kit.drain_sync()
        with pytest.raises(AssertionError, match=r"has run already: 2040-01-02 08:00:00 critical email:del"):
            kit.assert_enqueued(deliver)


def test_a_wrong_number_is_a_failure() -> None:
    """It says how many there are, and shows them."""
    with sound_kit(app) as kit:
        deliver.enqueue_sync(1)
        with pytest.raises(AssertionError, match=r"2 x email:deliver\(\) \(1 are\)\n  is email:deliver"):
            kit.assert_enqueued(deliver, count=2)


def test_refuting_fails_when_there_is_one() -> None:
    """The failure shows the task that was found."""
    with sound_kit(app) as kit:
        kit.refute_enqueued(deliver)
        deliver.enqueue_sync(1)
        kit.refute_enqueued(deliver, user_id=2)
        with pytest.raises(
            AssertionError, match=r"enqueued, and should not be: .*\n  is email:deliver\(user"
        ):
            kit.refute_enqueued(deliver, user_id=1)


@pytest.mark.parametrize("wanted", [{"user": 1}, {"args": {"user": 1}}])
def test_an_argument_that_the_handler_has_not_is_an_error(wanted: dict[str, object]) -> None:
    """A misspelt assertion must not hold, above all not a refuted one."""
    with sound_kit(app) as kit, pytest.raises(ArgumentsError, match="did you mean 'user_id'"):
        kit.refute_enqueued(deliver, **wanted)


def test_what_cannot_be_wanted_is_an_error() -> None:
    """Arguments of a bare type, and two process times."""
    with sound_kit(app) as kit:
        with pytest.raises(InvalidOptionError, match="only typed tasks have arguments"):
            kit.assert_enqueued("email:deliver", user_id=1)
        with pytest.raises(InvalidOptionError, match="not both"):
            kit.assert_enqueued(deliver, process_in=1, process_at=MONDAY)


def test_raw_payloads_are_compared_as_what_they_are() -> None:
    """Bytes exactly, JSON by value."""
    with sound_kit(app) as kit:
        kit.sync_client.enqueue("raw", b"\xff")
        kit.sync_client.enqueue("json", b"[1, 2]")
        kit.assert_enqueued("raw", payload=b"\xff")
        kit.assert_enqueued("json", payload=[1, 2])
        with pytest.raises(AssertionError, match="payload is not JSON"):
            kit.assert_enqueued("raw", payload={"a": 1})
        with pytest.raises(AssertionError, match=r"payload is b'\[1, 2\]', not b'x'"):
            kit.assert_enqueued(Task("json", b"x"))


def test_grouped_tasks_and_retries_wait_too() -> None:
    """`assert_enqueued` finds tasks in every state in which they are not finished."""
    with sound_kit(app) as kit:
        deliver.options(group="daily").enqueue_sync(1)
        kit.assert_enqueued(deliver, group="daily", state="aggregating", queue="critical")
        kit.sync_client.enqueue("unknown")
        kit.drain_sync(raises=False)
        kit.assert_enqueued("unknown", state="retry")


def test_more_than_a_page_is_seen() -> None:
    """Any number of tasks may match."""
    with sound_kit(app) as kit:
        app.enqueue_many_sync(deliver.task(number) for number in range(1_001))
        kit.assert_enqueued(deliver, count=1_001)


def test_an_argument_that_is_not_a_task_is_refused_by_name() -> None:
    """The function was not declared, and only the handler's arguments of a type can be checked."""

    def forgotten() -> None: ...

    with sound_kit(app) as kit:
        for ask in (kit.enqueued, kit.assert_enqueued, kit.refute_enqueued):
            with pytest.raises(InvalidOptionError, match=r"^task=<function .*forgotten.*: must be a typed"):
                ask(forgotten)  # type: ignore[arg-type]
        with pytest.raises(InvalidOptionError, match=r"^task=<str>: .*perform_task takes any Task"):
            kit.perform_sync("email:deliver", user_id=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["pendng", "active", 5])
def test_a_state_in_which_no_task_waits_is_refused(state: object) -> None:
    """Otherwise `refute_enqueued` would hold whatever is enqueued."""
    with sound_kit(app) as kit:
        for ask in (kit.enqueued, kit.assert_enqueued, kit.refute_enqueued):
            with pytest.raises(InvalidOptionError, match=r"^state=.*: must be 'pending', 'scheduled', "):
                ask(deliver, state=state)


@pytest.mark.parametrize("assertion", ["assert_enqueued", "refute_enqueued"])
def test_a_failed_assertion_points_to_the_line_of_the_test(assertion: str) -> None:
    """Pytest leaves out frames that say `__tracebackhide__`, as it does for its own. (D33)"""
    with sound_kit(app) as kit:
        if assertion == "refute_enqueued":
            deliver.enqueue_sync(1)
        with pytest.raises(AssertionError) as caught:
            getattr(kit, assertion)(deliver)
    hidden = [entry.frame.f_locals.get("__tracebackhide__", False) for entry in caught.traceback]
    assert [False, True] == hidden
