"""Recursive descent parser of queries, which records the position of every token.

query   = all { "OR" all }
all     = part { part }
part    = [ "-" ] ( "(" query ")" | field ":" value { "," value } | flag | word )
https://en.wikipedia.org/wiki/Recursive_descent_parser
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._visible_text import visible
from pyasynq.errors import QueryError
from pyasynq.errors import nearest as nearest_of
from pyasynq.task import TaskState

from ._fields import ELSEWHERE, FIELDS, PUBLIC_WORD, WORD, Field, Kind
from ._place import Place, reduce_to
from ._query import Query
from ._read_values import RawValue, read_value
from ._tree import FALSE, All, Clause, Either, Not, QueryNode

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LENGTH: Final = 2_000
"""Maximum length of a query in characters."""
MAX_CLAUSES: Final = 32
"""Largest number of clauses of a query; each value of a list counts as one, except states and ids."""
MAX_DEPTH: Final = 5
"""Deepest nesting of parentheses."""
_MAX_PARTS: Final = 32
"""Largest number of parts of a path."""

_SPACE: Final = re.compile(r"\s*")
# The alternatives of each group begin with different characters, which prevents backtracking.
HEAD: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_-]*)((?:\.(?:"(?:[^"\\]|\\.)*"|[^\s.:,()"]+))*):', re.DOTALL)
_SEGMENT: Final = re.compile(r'\.(?:"((?:[^"\\]|\\.)*)"|([^\s.:,()"]+))', re.DOTALL)
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE_VALUE: Final = re.compile(r'[^\s,()"]+')
_BARE_WORD: Final = re.compile(r'[^\s()"]+')
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_OR: Final = re.compile(r"OR(?=[\s()]|$)")
_AND: Final = re.compile(r"AND(?=[\s()]|$)")
_NOT: Final = re.compile(r"NOT(?=[\s()]|$)")
_FREE_KINDS: Final = (Kind.STATE, Kind.ID)


class _Head(NamedTuple):
    """The field of a clause, as the query names it."""

    field: Field
    name: str
    path: tuple[str | None, ...]


def parse_query(text: str, *, private: bool = True) -> Query:
    """Read a query; an empty one matches every task.

    Args:
        text: at most 2,000 characters with 32 clauses.
        private: whether values that may be redacted can be searched. If not, fields of such values are
            refused, and a word without a field is looked for in ids and types only.

    Raises:
        QueryError: for syntax errors, for an unknown field, and for clauses that exclude
            one another by the states in which they can match.
    """
    if len(text) > MAX_LENGTH:
        raise QueryError(
            MAX_LENGTH, len(text) - MAX_LENGTH, f"A query has at most {MAX_LENGTH:,} characters."
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(error.start, 1, "This character is half of a surrogate pair.") from None
    reader = _Reader(text, private=private)
    node = reader.read_all()
    _check_states(node)
    return Query(text, node)


class _Reader:
    """State of the parser: the text, and the current position."""

    def __init__(self, text: str, *, private: bool) -> None:
        self._text = text
        self._at = 0
        self._clauses = 0
        self._private = private

    def read_all(self) -> QueryNode:
        """Parse the whole text into a syntax tree."""
        self._skip_space()
        if self._at == len(self._text):
            return All(())
        node = self._read_either(0)
        if self._at < len(self._text):
            raise QueryError(self._at, 1, "This parenthesis closes nothing.")
        return node

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _read_either(self, depth: int) -> QueryNode:
        parts = [self._read_conjunction(depth)]
        while found := self._take(_OR):
            self._skip_space()
            if self._is_at_end():
                raise QueryError(found.start(), 2, "`OR` needs a clause on both sides.", '"OR"')
            parts.append(self._read_conjunction(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _is_at_end(self) -> bool:
        return (
            self._at == len(self._text)
            or self._text[self._at] == ")"
            or bool(_OR.match(self._text, self._at))
        )

    def _read_conjunction(self, depth: int) -> QueryNode:
        parts: list[QueryNode] = []
        while not self._is_at_end():
            found = self._take(_AND)
            if found:
                self._skip_space()
            if found and (not parts or self._is_at_end()):
                raise QueryError(found.start(), 3, "`AND` needs a clause on both sides.", '"AND"')
            parts.append(self._read_part(depth))
            self._skip_space()
        if not parts:
            self._refuse_nothing()
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _refuse_nothing(self) -> None:
        if _OR.match(self._text, self._at):
            raise QueryError(self._at, 2, "`OR` needs a clause on both sides.", '"OR"')
        raise QueryError(self._at, 1 if self._at < len(self._text) else 0, "A clause is missing here.")

    def _read_part(self, depth: int) -> QueryNode:
        start = self._at
        if found := _NOT.match(self._text, start):
            raise QueryError(
                start, found.end() - start, "`NOT` is written as a minus before the clause.", "-"
            )
        if self._text[start] != "-":
            return self._read_positive(depth)
        self._at += 1
        following = self._text[self._at : self._at + 1]
        if not following or following.isspace() or following in {"-", ")"}:
            raise QueryError(
                start, 1, "A minus stands directly before the one clause that it negates.", '"-"'
            )
        return Not(self._read_positive(depth))

    def _read_positive(self, depth: int) -> QueryNode:
        if self._text[self._at] == "(":
            return self._read_parentheses(depth + 1)
        self._clauses += 1
        start = self._at
        clause = self._read_clause(start)
        if self._clauses > MAX_CLAUSES:
            sentence = f"A query has at most {MAX_CLAUSES} clauses; each value of a list counts as one."
            raise QueryError(start, self._at - start, sentence)
        following = self._text[self._at : self._at + 1]
        if following and following in '("':
            whole = self._text[start : self._at + 1]
            raise QueryError(
                self._at, 1, "Put a value with this character in quotes.", _quote(whole.replace('"', ""))
            )
        return clause

    def _read_parentheses(self, depth: int) -> QueryNode:
        start = self._at
        if depth > MAX_DEPTH:
            raise QueryError(start, 1, f"Parentheses go at most {MAX_DEPTH} deep.")
        self._at += 1
        self._skip_space()
        node = self._read_either(depth)
        if self._at == len(self._text):
            raise QueryError(start, 1, "This parenthesis is never closed.", ")")
        self._at += 1
        return node

    def _read_clause(self, start: int) -> Clause:
        found = self._take(HEAD)
        if found is None:
            return self._read_word(start)
        head = self._find_field(found)
        values = self._read_values(head)
        return Clause(
            head.field,
            head.path,
            tuple(read_value(head.field, head.name, value) for value in values),
            start,
            self._at - start,
        )

    def _read_word(self, start: int) -> Clause:
        value = self._read_raw(_BARE_WORD, "")
        flag = FIELDS.get(value.text)
        if flag is not None and flag.kind is Kind.FLAG and not value.is_quoted:
            return Clause(flag, (), (), start, value.length)
        field = WORD if self._private else PUBLIC_WORD
        return Clause(field, (), (read_value(field, "", value),), start, value.length)

    def _find_field(self, head: re.Match[str]) -> _Head:
        name, path_text = head[1], head[2]
        key = f"{name}." if path_text else name
        field = FIELDS.get(key)
        if field is None or field.kind is Kind.FLAG:
            raise self._unknown_field(head)
        if field.is_private and not self._private:
            sentence = f"Searching `{key}` needs the right to view payloads."
            raise QueryError(head.start(), head.end() - head.start(), sentence)
        if path_text.count(".") > _MAX_PARTS:
            sentence = f"A path has at most {_MAX_PARTS} parts."
            raise QueryError(head.start(), head.end() - head.start(), sentence)
        path = [_unescape(part[1]) if part[2] is None else part[2] for part in _SEGMENT.finditer(path_text)]
        stars = [part[2] == "*" for part in _SEGMENT.finditer(path_text)]
        return _Head(
            field,
            f"{name}{path_text}",
            tuple(None if star else part for star, part in zip(stars, path, strict=True)),
        )

    def _unknown_field(self, head: re.Match[str]) -> QueryError:
        name, path_text = head[1], head[2]
        start, length = head.start(), head.end() - head.start()
        value = _BARE_WORD.match(self._text, head.end())
        rest = value[0] if value else ""
        if name in FIELDS and not path_text:
            return QueryError(start, length, f"`{name}` takes no value.", name)
        if path_text:
            guess = f"{name}:{rest}" if name in FIELDS else f"payload.{name}{path_text}:{rest}"
            known = f"`{name}:` has no parts" if name in FIELDS else f"There is no field `{visible(name)}.`"
            return QueryError(start, length, f"{known}; payloads and headers have.", guess)
        if name.lower() in ELSEWHERE:
            meaning, example = ELSEWHERE[name.lower()]
            is_open = example.endswith((":", "."))
            return QueryError(start, length, f"`{name}:` {meaning}.", example + rest if is_open else example)
        if f"{name}." in FIELDS:
            return QueryError(start, length, f"`{name}.` takes a path before the colon.", f"{name}.")
        near = nearest_of(name.lower(), [known for known in FIELDS if not known.endswith(".")])
        guess = f"{near.split(chr(39))[1]}:{rest}" if near else f'"{name}:{rest}"'
        sentence = f"There is no field `{visible(name)}:`; put text with a colon in quotes."
        return QueryError(start, length, sentence, guess)

    def _read_values(self, head: _Head) -> Sequence[RawValue]:
        values = [self._read_raw(_BARE_VALUE, f"`{head.name}:` needs a value", head.field)]
        while self._text[self._at : self._at + 1] == ",":
            self._at += 1
            values.append(self._read_raw(_BARE_VALUE, "A value is missing after the comma", head.field))
            if head.field.kind not in _FREE_KINDS:
                self._clauses += 1
        return values

    def _read_raw(self, bare: re.Pattern[str], missing: str, field: Field = WORD) -> RawValue:
        start = self._at
        if found := self._take(_QUOTED):
            return RawValue(_unescape(found[1]), True, start, found.end() - start)
        if self._text[start : start + 1] == '"':
            raise QueryError(
                start,
                len(self._text) - start,
                "This quote is never closed.",
                _quote(self._text[start + 1 :]),
            )
        if found := self._take(bare):
            return RawValue(found[0], False, start, found.end() - start)
        sentence = f"{missing or 'A clause is missing here'}."
        raise QueryError(start, min(1, len(self._text) - start), sentence, field.example if missing else "")


def _check_states(node: QueryNode) -> None:
    """Raise `QueryError` if no task state allows all clauses; mark the first clause that leaves no state."""
    states = list(TaskState)
    for part in node.parts if isinstance(node, All) else [node]:
        left = [state for state in states if reduce_to(part, Place(state)) != FALSE]
        if not left:
            raise _contradiction(part, states)
        states = left


def _contradiction(part: QueryNode, states: Sequence[TaskState]) -> QueryError:
    clause = part
    while not isinstance(clause, Clause):
        clause = clause.part if isinstance(clause, Not) else clause.parts[0]
    names = ", ".join(states)
    if clause.field.name == "state":
        return QueryError(
            clause.position, clause.length, f"The other clauses match only tasks that are {names}."
        )
    known = ", ".join(state.value for state in TaskState if state in clause.field.states)
    name = clause.field.name or "text"
    sentence = f"`{name}` is known of {known} tasks only, and the other clauses leave those out."
    return QueryError(clause.position, clause.length, sentence, f"state:{known.split(', ', maxsplit=1)[0]}")


def _unescape(text: str) -> str:
    return _ESCAPE.sub(r"\1", text)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
