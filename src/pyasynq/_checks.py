"""Checks of option values, which every door shares."""

from __future__ import annotations

from pyasynq.errors import InvalidOptionError


def is_whole(value: object, least: int) -> bool:
    """Return whether a value is a whole number that is not below `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_whole(name: str, value: object, least: int) -> None:
    """Raise `InvalidOptionError` for anything but a whole number of at least `least`."""
    if not is_whole(value, least):
        raise InvalidOptionError(name, value, f"must be a whole number of at least {least}")


def check_switch(name: str, value: object) -> None:
    """Raise `InvalidOptionError` for anything but True and False."""
    if not isinstance(value, bool):
        raise InvalidOptionError(name, value, "must be True or False")


def check_function(name: str, value: object) -> None:
    """Raise `InvalidOptionError` for what cannot be called."""
    if not callable(value):
        raise InvalidOptionError(name, value, "must be a function")


def check_handler_rules(is_failure: object, crash_limit: object) -> None:
    """Check the rules that a handler may have of its own; None stands for the server's.

    Raises:
        InvalidOptionError: for a rule that cannot be.
    """
    if is_failure is not None:
        check_function("is_failure", is_failure)
    if crash_limit is not None:
        check_whole("crash_limit", crash_limit, 0)
