"""Declaring what an app enqueues periodically; nothing connects."""

from __future__ import annotations

import pytest

from pyasynq import App, CronError, SchedulerConfig, Task
from pyasynq.errors import ArgumentsError, InvalidOptionError, UnknownOptionError

URL = "redis://localhost:6379/0"


def scheduled(app: App) -> list[Task]:
    """Return what the app's scheduler would enqueue."""
    return list(app.scheduler().entries.values())


def sweep(older_than: int = 30) -> None:
    """A handler with a default for its argument."""


def test_a_task_is_scheduled_by_the_decorator_above_it() -> None:
    """With the options of its declaration; it is still the same task."""
    app = App(URL)

    @app.cron("*/5 * * * *", max_retry=2)
    @app.task("report", queue="low", max_retry=1)
    async def report() -> None: ...

    [task] = scheduled(app)
    assert ("report", b"{}", {"queue": "low", "max_retry": 2}) == (task.type, task.payload, task.options)
    assert report is app.tasks["report"]
    assert 1 == report.declared_options["max_retry"]


def test_a_function_is_declared_as_a_task() -> None:
    """Under its name; options are those of the scheduled tasks."""
    app = App(URL)
    declared = app.cron("@daily", queue="low")(sweep)
    [task] = scheduled(app)
    assert (b'{"older_than":30}', {"queue": "low"}) == (task.payload, task.options)
    assert task.type == declared.type
    assert {} == declared.declared_options


def test_a_handler_may_have_several_expressions() -> None:
    """Each is an entry of its own, also when they are equal."""
    app = App(URL)

    @app.cron("0 9 * * *")
    @app.cron("0 17 * * *", misfire="once")
    @app.cron("0 17 * * *")
    @app.task("report")
    async def report() -> None: ...

    assert 3 == len(scheduled(app))


def test_a_call_with_arguments_is_scheduled_by_schedule() -> None:
    """Checked by type checkers like any other call."""
    app = App(URL)

    @app.task("report", queue="low")
    async def report(user_id: int) -> None: ...

    app.schedule("0 9 * * *", report.task(user_id=1), max_retry=0)
    [task] = scheduled(app)
    assert ("report", b'{"user_id":1}', {"queue": "low", "max_retry": 0}) == (
        task.type,
        task.payload,
        task.options,
    )


def test_the_queues_of_schedules_are_served() -> None:
    """By a worker that is not told which queues to serve."""
    app = App(URL)

    @app.cron("@daily", queue="nightly")
    @app.task("report", queue="low")
    async def report() -> None: ...

    app.schedule("@daily", Task("other", queue="foreign"))
    assert ("foreign", "low", "nightly") == app.queues


def test_what_cannot_be_is_refused_where_it_is_declared() -> None:
    """The error comes from the declaration, and not from the start of a scheduler."""
    app = App(URL)

    @app.task("report")
    async def report(user_id: int) -> None: ...

    with pytest.raises(CronError):
        app.cron("every day")(report)
    with pytest.raises(ArgumentsError, match="user_id"):
        app.cron("@daily")(report)
    with pytest.raises(InvalidOptionError, match="misfire"):
        app.cron("@daily", misfire="never")(report.options())  # type: ignore[arg-type]
    with pytest.raises(UnknownOptionError):
        app.cron("@daily", quue="low")  # type: ignore[call-arg]
    with pytest.raises(InvalidOptionError, match="misfire"):
        app.schedule("@daily", report.task(1), misfire="never")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="max_retry"):
        app.schedule("@daily", report.task(1), max_retry=-1)
    with pytest.raises(CronError):
        app.schedule("every day", report.task(1))
    assert [] == scheduled(app)


def test_an_annotation_may_be_defined_further_down() -> None:
    """The arguments are looked at when all modules are there."""
    app = App(URL)

    @app.cron("@daily")
    @app.task("report")
    async def report(later: Later | None = None) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - that is the point

    globals()["Later"] = int
    try:
        [task] = scheduled(app)
    finally:
        del globals()["Later"]
    assert b'{"later":null}' == task.payload


def test_the_scheduler_has_the_apps_configuration() -> None:
    """Location, hooks, heartbeat."""
    config = SchedulerConfig(location="Europe/Berlin")
    assert config is App(URL, scheduler_config=config).scheduler().config


def test_a_call_of_a_handler_is_refused_with_what_to_write_instead() -> None:
    """A coroutine is closed, so that Python does not warn of it as well."""
    app = App(URL)

    @app.task("deliver")
    async def deliver() -> None: ...

    with pytest.raises(InvalidOptionError, match=r"must be a Task; a call runs the .*handler\.task\("):
        app.schedule("* * * * *", deliver())  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match=r"must be a Task; write deliver\.task\("):
        app.schedule("* * * * *", deliver)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match=r"must be a Task$"):
        app.schedule("* * * * *", 5)  # type: ignore[arg-type]
