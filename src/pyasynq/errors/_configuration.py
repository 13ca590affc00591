"""Errors for wrong arguments, options and settings."""

from typing import TYPE_CHECKING

from pyasynq.errors._base import PyasynqError, describe_value, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConfigurationError(PyasynqError, ValueError):
    """A setting, URL or declaration that cannot work."""


class UnknownAnnotationError(ConfigurationError):
    """An annotation uses a name that is not defined, or not defined yet (forward reference)."""


class InvalidOptionError(ConfigurationError):
    """An option with an invalid value. The message shows numbers and times; of other values, only the type.

    Attributes:
        option: the option's name.
        value: the given value.
    """

    def __init__(self, option: str, value: object, remedy: str) -> None:
        # A class given instead of a value hides the value, which may be secret.
        shown = f"<{value.__qualname__}>" if isinstance(value, type) else describe_value(value)
        super().__init__(f"{option}={shown}: {remedy}")
        self.option = option
        self.value = value
        self.remedy = remedy


# Names of our options in Celery, RQ, arq, Dramatiq, taskiq and Huey, in our own files, and of similar
# settings; none resembles the option in spelling.
_OPTIONS_ELSEWHERE = {
    "at_time": "process_at",
    "concurrency": "max_run",
    "countdown": "process_in",
    "defer_by": "process_in",
    "defer_until": "process_at",
    "delay": "process_in",
    "eta": "process_at",
    "expires": "deadline",
    "job_id": "task_id",
    "job_timeout": "timeout",
    "job_try": "max_retry",
    "keep_result": "retention",
    "queue_name": "queue",
    "result_ttl": "retention",
    "retries": "max_retry",
    "soft_time_limit": "timeout",
    "time_limit": "timeout",
    "weight": "priority",
}
_MOST_LISTED = 30
"""Number of options up to which an error lists them."""


class UnknownOptionError(ConfigurationError, TypeError):
    """An option that does not exist; the message suggests the nearest one.

    Attributes:
        option: the given name.
    """

    def __init__(self, option: str, known: "Iterable[str]", *, owner: str = "", remedy: str = "") -> None:
        known = sorted(known)
        meant = _OPTIONS_ELSEWHERE.get(option.strip("_"))
        hint = f"; did you mean {meant!r}?" if meant in known else nearest(option, known)
        if remedy:
            hint = f"; {remedy}"
        elif not hint and owner and len(known) > _MOST_LISTED:
            hint = f"; help({owner}) lists them"
        hint = hint or f"; the options are {', '.join(known)}"
        unknown = f"{owner} has no option {option!r}" if owner else f"there is no option {option!r}"
        super().__init__(f"{unknown}{hint}")
        self.option = option


class CronError(ConfigurationError):
    """An invalid cron expression; the message says what to write instead.

    Attributes:
        expression: the whole expression.
        field: name of the wrong field, such as ``"day of week"``; None if no single field is wrong.
        value: the wrong part.
    """

    def __init__(self, expression: str, value: str, remedy: str, *, field: str | None = None) -> None:
        place = f"{field} " if field else ""
        shown = "" if value == expression else f": {place}{_quote_short(value)}"
        super().__init__(f"cron expression {_quote_short(expression)}{shown}: {remedy}")
        self.expression = expression
        self.field = field
        self.value = value


def _quote_short(text: str) -> str:
    """Quote a string, cut to 100 characters."""
    return repr(text if len(text) <= 100 else text[:99] + "\N{HORIZONTAL ELLIPSIS}")


class PayloadTooLargeError(ConfigurationError):
    """A task larger than the client's `max_payload`; nothing was sent.

    Attributes:
        size: size of the payload in bytes, including the headers if there are any.
        limit: allowed bytes.
    """

    def __init__(self, size: int, limit: int, *, what: str = "the payload has") -> None:
        super().__init__(
            f"{what} {size:,} bytes and the limit is {limit:,}: "
            "store the data elsewhere and enqueue a reference to it, or raise max_payload",
        )
        self.size = size
        self.limit = limit


class ResultTooLargeError(PyasynqError):
    """A result larger than the server's `max_result`, which was not stored. The task fails as usual.

    Attributes:
        size: bytes of the result.
        limit: allowed bytes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the result has {size:,} bytes and the limit is {limit:,}: "
            "store the data elsewhere and return a reference to it, or raise max_result",
        )
        self.size = size
        self.limit = limit


class ArgumentsError(ConfigurationError, TypeError):
    """A typed task called with missing, unknown or surplus arguments.

    Attributes:
        argument: the unknown argument's name, or None.
    """

    def __init__(self, message: str, argument: str | None) -> None:
        super().__init__(message)
        self.argument = argument


class PayloadEncodingError(ConfigurationError):
    """Arguments that the payload's JSON cannot carry; the message names the argument."""


class PayloadDecodingError(PyasynqError):
    """A payload that does not fit the handler's arguments: an ordinary failure of the task.

    Also a stored result that does not fit the return annotation of the handler.
    """
