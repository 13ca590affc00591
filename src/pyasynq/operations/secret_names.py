"""Names of secret fields: names that match a pattern, and fields that workers have published by task type.

A published field is a name, which is secret at any depth, or a path such as `card.number` or `keys[].value`.
In a path, `[]` is any element of a list or any member of an object.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Paths: TypeAlias = "frozenset[tuple[str, ...]]"
"""Remaining steps of the path to each secret below a JSON value; an empty path means that value itself."""

SecretFields: TypeAlias = "Callable[[str], Iterable[str]]"
"""Type of a function that returns the names and paths of the secret fields of a task type."""

ANY: Final = "[]"
NO_PATHS: Final[Paths] = frozenset()

_ANCHOR: Final = re.compile(r"[\^$]|\\[bBAZ]")
_STEP: Final = re.compile(r"\[\]|[^.\[]+|\[")
# Bounded repetitions: text of a hostile task must not make the search quadratic.
_ASSIGNMENT: Final = (
    r"(?P<name>(?:{names})[\w-]{{0,64}})(?<!Error)(?<!Exception)(?P<sign>\\{{0,4}}[\"']?\s{{0,8}}[:=]\s{{0,8}})"
    r"(?:(?:Bearer|Basic|Digest|Token)\s+)?"
    r"(?!\[redacted\](?:[\s,;&)}}\]]|$))"  # redacting a text twice must not change it
    r"(?:\\{{0,4}}\"[^\"]*\"|'[^']*'|(?:\[redacted\])?[^\s,;&)}}\]]+)"
)
_ASSIGNED_FIELD: Final = r"\b(?:{names})\b"


class SecretNames(NamedTuple):
    """The names of secrets for one task type; made by `secret_names`.

    Attributes:
        pattern: regular expression of names that are secret for all types; searched anywhere in a name; case
            is ignored.
        fields: published names, in lower case.
        paths: published paths that have several steps.
        last: the last name of each path, in lower case.
        assignment: pattern of an assignment to a secret in a text.
        is_anchored: whether the pattern must be tested against single names, and cannot be sought in a text.
    """

    pattern: re.Pattern[str]
    fields: frozenset[str]
    paths: Paths
    last: frozenset[str]
    assignment: re.Pattern[str]
    is_anchored: bool

    def match(self, name: str) -> bool:
        """Return whether this is the name of a secret at any depth."""
        return name.lower() in self.fields or self.pattern.search(name) is not None

    def match_loosely(self, name: str) -> bool:
        """Return whether this may be the name of a secret, where its path is not known."""
        return self.match(name) or name.lower() in self.last

    def occurs_in(self, text: str) -> bool:
        """Return whether a name of a secret may be somewhere in a text."""
        if self.is_anchored or any(set(path) == {ANY} for path in self.paths) or self.pattern.search(text):
            return True
        names = self.fields | self.last
        lowered = text.lower() if names else ""
        return any(name in lowered for name in names)


@lru_cache(maxsize=1_024)
def secret_names(pattern: str, published: tuple[str, ...] = ()) -> SecretNames:
    """Return the names of secrets that match a pattern, or are published."""
    steps = [tuple(_STEP.findall(name.lower())) for name in published]
    paths = frozenset(path for path in steps if len(path) > 1 or path == (ANY,))
    last = frozenset(names[-1] for path in paths if (names := [step for step in path if step != ANY]))
    # A name may have a dot in it.
    fields = frozenset(name.lower() for name in published if name and name != ANY)
    plain = "|".join(map(re.escape, sorted(fields | last)))
    alternatives = f"{pattern}|{_ASSIGNED_FIELD.format(names=plain)}" if plain else pattern
    return SecretNames(
        pattern=re.compile(pattern, re.IGNORECASE),
        fields=fields,
        paths=paths,
        last=last,
        assignment=re.compile(_ASSIGNMENT.format(names=alternatives), re.IGNORECASE),
        is_anchored=_ANCHOR.search(pattern) is not None,
    )


class PathWalk:
    """A walk through the tokens of JSON that knows whether the next value is a secret by its path."""

    def __init__(self, paths: Paths) -> None:
        self._below = paths
        self._opened: list[tuple[str, Paths]] = []

    @property
    def is_secret(self) -> bool:
        """Whether a path of a secret field ends at the next value."""
        return () in self._below

    def enter(self, name: str) -> None:
        """Step into a member of a JSON object: the next value is the member's."""
        self._below = _step_into(self._opened[-1][1] if self._opened else NO_PATHS, name)

    def pass_by(self, mark: str) -> None:
        """Advance over a token that is not a member's name, given its first character."""
        if mark in "{[":
            self._opened.append((mark, self._below))
        elif mark in "}]" and self._opened:
            self._opened.pop()
        is_element = mark in "[," and self._opened and self._opened[-1][0] == "["
        self._below = _step_into(self._opened[-1][1], None) if is_element else NO_PATHS


def _step_into(paths: Paths, name: str | None) -> Paths:
    """Return the remaining paths below a member of an object, or below a list element if `name` is None."""
    if not paths:
        return paths
    steps = {ANY} if name is None else {ANY, name.lower()}
    return frozenset(path[1:] for path in paths if path and path[0] in steps)
