"""`Secret`: an argument of a task that no log, error or tool shows."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

_T_co = TypeVar("_T_co", covariant=True)


class Secret(Generic[_T_co]):
    """A value that no log, error or tool shows: `async def log_in(user: str, password: Secret[str])`.

    Redis stores the value as plain JSON, so workers in Go read it as usual. Anyone with access to Redis can
    read it too. Workers publish which fields of a task are secret, and tools hide those fields.
    """

    __slots__ = ("_value",)

    def __init__(self, value: _T_co) -> None:
        self._value = value

    def reveal(self) -> _T_co:
        """Return the secret value."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled: a pickle would show its value")

    def __repr__(self) -> str:
        return "Secret(...)"
