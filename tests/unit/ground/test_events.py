"""Events that tell of nothing special are built only for those who want them now."""

from __future__ import annotations

from pyasynq.events import Events, Outcome, TaskFinished

EVENT = TaskFinished("default", "id", "t", 0, 25, Outcome.SUCCEEDED, 0.1, None)


def test_without_subscribers_nothing_is_wanted() -> None:
    """No event object is built while no function has subscribed to it."""
    events = Events()
    assert not events.wants(TaskFinished)
    assert not events.wants_routine(TaskFinished)


def test_a_subscriber_without_a_filter_gets_all_events() -> None:
    """Metrics and tests count successes too."""
    events = Events()
    end = events.subscribe(TaskFinished, lambda event: None)
    assert events.wants_routine(TaskFinished)
    end()
    assert not events.wants_routine(TaskFinished)


def test_a_subscriber_may_change_its_filter() -> None:
    """The level of a log can change while a server runs."""
    events, wanted = Events(), [False]
    events.subscribe(TaskFinished, lambda event: None, routine=lambda: wanted[0])
    assert events.wants(TaskFinished)
    assert not events.wants_routine(TaskFinished)
    wanted[0] = True
    assert events.wants_routine(TaskFinished)


def test_one_who_wants_them_is_enough_and_all_are_told() -> None:
    """Subscribers that do not want routine events can tell them apart."""
    events = Events()
    told: list[TaskFinished] = []
    events.subscribe(TaskFinished, told.append, routine=lambda: False)
    events.subscribe(TaskFinished, told.append)
    assert events.wants_routine(TaskFinished)
    events.emit(EVENT)
    assert [EVENT, EVENT] == told


def test_one_who_never_wants_routine_events_hears_of_the_others() -> None:
    """A function would be called for each success of a task."""
    events = Events()
    told: list[TaskFinished] = []
    end_never = events.subscribe(TaskFinished, told.append, routine=False)
    assert not events.wants_routine(TaskFinished)
    end_always = events.subscribe(TaskFinished, lambda event: None)
    assert events.wants_routine(TaskFinished)
    end_always()
    assert not events.wants_routine(TaskFinished)
    events.emit(EVENT)
    assert [EVENT] == told
    end_never()
    assert not events.wants(TaskFinished)
