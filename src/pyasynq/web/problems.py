"""Error pages: what happened, and what the user can do next."""

from __future__ import annotations

import difflib
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq import errors
from pyasynq._visible_text import visible, visible_lines
from pyasynq.web.auth.origin import SAFE_METHODS
from pyasynq.web.page import Page

if TYPE_CHECKING:
    from pyasynq.web.page import PageRequest

_log = logging.getLogger("pyasynq.web")
TRY_AGAIN: Final = "Try again"
HOME: Final = "Back to overview"


@dataclass(frozen=True, slots=True)
class NextStep:
    """Link to a next step."""

    label: str
    href: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """View model of an error page."""

    heading: str
    text: str
    actions: tuple[NextStep, ...] = ()
    code: str = ""
    code_label: str = ""


async def problem_page(ask: PageRequest, error: Exception) -> Page:
    """Return the page for an error. An unexpected error is logged under a number that the page shows."""
    if isinstance(error, errors.QueueNotFoundError):
        return await _make_queue_page(ask, error)
    if isinstance(error, errors.RedisError):
        return trouble_page(503, _redis_trouble(ask, error))
    if not isinstance(error, errors.PyasynqError):
        return bug_page(ask, error)
    return trouble_page(*_known_trouble(ask, error))


def _known_trouble(ask: PageRequest, error: errors.PyasynqError) -> tuple[int, Trouble]:
    overview = NextStep(HOME, ask.links.to())
    match error:
        case errors.PermissionDeniedError():
            return 403, Trouble("You may not do this", _sentence(error), (overview,))
        case (
            errors.TaskNotFoundError()
            | errors.OperationNotFoundError()
            | errors.ApiKeyNotFoundError()
            | errors.ServerNotFoundError()
            | errors.ScheduleNotFoundError()
        ):
            return 404, _gone(ask, error)
        case errors.InvalidOptionError() if ask.request.method not in SAFE_METHODS:
            text = _sentence(f"{error.option.replace('_', ' ')} {error.remedy}")
            return 400, Trouble("A field of the form has a wrong value", text, (overview,))
        case errors.ConfigurationError() | errors.UnknownTaskStateError() | errors.QueryError():
            return 400, Trouble("This address contains an invalid value", _sentence(error), (overview,))
        case _:
            again = NextStep(TRY_AGAIN, ask.links.here())
            return 409, Trouble("This cannot be done", _sentence(error), (again, overview))


def _gone(ask: PageRequest, error: errors.PyasynqError) -> Trouble:
    """Return the error page's view model for a task or other object that does not exist, or was deleted."""
    to = ask.links.to
    match error:
        case errors.TaskNotFoundError():
            text = "It has ended without retention, or it was deleted. Redis keeps nothing of such tasks."
            steps = NextStep("Search for it", to("tasks", q=f'id:"{error.task_id}"')), NextStep(HOME, to())
            return Trouble("This task is gone", text, steps)
        case errors.ServerNotFoundError():
            text = "Its record in Redis lapses ten seconds after its last heartbeat."
            return Trouble("This server is gone", text, (NextStep("All servers", to("servers")),))
        case errors.ApiKeyNotFoundError():
            text = "It was deleted, or there never was a key with this id."
            return Trouble("This key is gone", text, (NextStep("All keys", to("keys")),))
        case errors.ScheduleNotFoundError():
            text = "Its scheduler has stopped, or it is not in the scheduler's list any more."
            return Trouble("This schedule is gone", text, (NextStep("All schedules", to("schedules")),))
        case _:
            text = "Operations are kept for 30 days, and shown to those who see all their queues."
            steps = NextStep("All operations", to("operations")), NextStep(HOME, to())
            return Trouble("This operation is gone", text, steps)


def trouble_page(status: int, trouble: Trouble) -> Page:
    """Return the error page with this status and view model."""
    return Page("trouble.html", trouble.heading, "", trouble, status=status)


def not_found_page(ask: PageRequest) -> Page:
    """Return the page for an unknown address."""
    trouble = Trouble(
        "There is no such page", "The address leads nowhere.", (NextStep(HOME, ask.links.to()),)
    )
    return trouble_page(404, trouble)


def bug_page(ask: PageRequest, error: BaseException) -> Page:
    """Log an unexpected error under a reference number, and return a page that shows only this number."""
    number = f"{secrets.token_hex(2)}-{secrets.token_hex(2)}"
    _log.error("error %s on the page %s", number, visible(ask.links.path), exc_info=error)
    return trouble_page(
        500,
        Trouble(
            "This page could not be made",
            "It is a bug. The log has more under this number.",
            (NextStep(TRY_AGAIN, ask.links.here()), NextStep(HOME, ask.links.to())),
            number,
            "Number of the error",
        ),
    )


async def _make_queue_page(ask: PageRequest, error: errors.QueueNotFoundError) -> Page:
    actions = [NextStep("All queues", ask.links.to("queues"))]
    try:
        names = await ask.operator.queues()
    except errors.PyasynqError:
        names = []
    near = difflib.get_close_matches(error.queue, names, n=1)
    actions += [NextStep(visible(name), ask.links.to("queues", name)) for name in near]
    text = f"Do you mean {visible(near[0])}? " if near else ""
    trouble = Trouble(
        f"There is no queue “{visible(error.queue)}”",
        text + "A queue appears with its first task.",
        tuple(reversed(actions)),
    )
    return trouble_page(404, trouble)


def _redis_trouble(ask: PageRequest, error: errors.RedisError) -> Trouble:
    heading, advice = "Redis refused", ""
    match error:
        case errors.RedisUnavailableError():
            heading = "Redis does not answer"
        case errors.RedisPermissionError():
            heading, advice = (
                "The Redis user lacks a right",
                " docs/redis.md lists the rights that are needed.",
            )
        case errors.RedisOutOfMemoryError():
            heading, advice = "Redis is full", " Free memory, or raise maxmemory."
    return Trouble(heading, _sentence(error) + advice, (NextStep(TRY_AGAIN, ask.links.here()),))


def _sentence(error: object) -> str:
    text = visible_lines(str(error)).strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
