"""Make the mutants of a Lua script: copies that are wrong in exactly one place.

    delete      a statement that calls Redis is gone: `redis.call('DEL', key)`, `x = redis.call(...)`
    neutral     what Redis would have answered is replaced, where a statement needs some value:
                `local x = false`, `return false`, `if false then`, `while false do`, `until true`,
                `for ... in ipairs({}) do`, `for i = 1, 0 do`
    other-end   'LPUSH' became 'RPUSH', or the reverse
    boundary    `<` became `<=`, `>` became `>=`, or the reverse

A statement counts only the calls of its own: those in the body of a function inside it belong to the
statements of that body. `local call = redis.call` makes `call(...)` a call of Redis, too.
"""

from __future__ import annotations

from typing import NamedTuple

from tools.lua_tokens import Token, fail, tokens_of

DELETE, NEUTRAL, OTHER_END, BOUNDARY = "delete", "neutral", "other-end", "boundary"

_BLOCK_ENDS = frozenset({"end", "else", "elseif", "until", ""})
_UNARY = frozenset({"not", "-", "#"})
_BINARY = frozenset({"+", "-", "*", "/", "%", "^", "..", "<", "<=", ">", ">=", "==", "~=", "and", "or"})
_REDIS_CALLS = ("redis.call", "redis.pcall")
_SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_OTHER_END = {"LPUSH": "RPUSH", "RPUSH": "LPUSH"}


class Mutant(NamedTuple):
    """Copy of a script with one deliberate bug."""

    line: int
    """Number of the changed line, from 1."""
    text: str
    """The original line, stripped."""
    kind: str
    source: str
    """The text of the whole mutated script."""


class _Edit(NamedTuple):
    start: int
    end: int
    replacement: str
    kind: str


def mutants_of(source: str) -> list[Mutant]:
    """Return every mutant of a script, in the order of the changed places."""
    tokens = tokens_of(source)
    edits = [*_Parser(source, tokens).edits(), *_swaps(tokens)]
    lines = source.splitlines()
    mutants = []
    for start, end, replacement, kind in sorted(edits):
        line = source.count("\n", 0, start) + 1
        mutants.append(
            Mutant(line, lines[line - 1].strip(), kind, source[:start] + replacement + source[end:])
        )
    return mutants


def _swaps(tokens: list[Token]) -> list[_Edit]:
    edits = []
    for token in tokens:
        if token.kind == "symbol" and token.text in _SWAPPED:
            edits.append(_Edit(token.start, token.end, _SWAPPED[token.text], BOUNDARY))
        elif token.kind == "string" and token.text[1:-1].upper() in _OTHER_END:
            quote = token.text[0]
            swapped = f"{quote}{_OTHER_END[token.text[1:-1].upper()]}{quote}"
            edits.append(_Edit(token.start, token.end, swapped, OTHER_END))
    return edits


class _Parser:
    """Parser that walks through the statements of a script and collects its possible mutations."""

    def __init__(self, source: str, tokens: list[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._at = 0
        self._edits: list[_Edit] = []
        self._aliases: set[str] = set()
        # Number of Redis calls so far, one counter for each enclosing function.
        self._calls = [0]

    def edits(self) -> list[_Edit]:
        self._block()
        self._expect("")
        return self._edits

    # Tokens

    @property
    def _next(self) -> str:
        return self._tokens[self._at].text

    def _advance(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, *texts: str) -> bool:
        if self._next in texts:
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        token = self._tokens[self._at]
        if token.text != text:
            fail(self._source, token.start, f"expected {text or 'the end of the script'!r}")
        if text:
            self._at += 1

    def _name(self) -> str:
        token = self._advance()
        if token.kind != "name":
            fail(self._source, token.start, "expected a name")
        return token.text

    def _text_since(self, first: int) -> str:
        return "".join(token.text for token in self._tokens[first : self._at])

    def _mark(self) -> tuple[int, int]:
        """Return the current position, to check later whether Redis was called after it."""
        return self._tokens[self._at].start, self._calls[-1]

    def _break(self, mark: tuple[int, int], replacement: str, kind: str) -> None:
        """Record an edit of the text since the mark, if Redis was called in it."""
        start, calls = mark
        if self._calls[-1] > calls:
            self._edits.append(_Edit(start, self._tokens[self._at - 1].end, replacement, kind))

    # Statements

    def _block(self) -> None:
        while self._next not in _BLOCK_ENDS:
            self._statement()
            self._accept(";")

    def _statement(self) -> None:
        readers = {
            "if": self._if,
            "while": self._while,
            "for": self._for,
            "repeat": self._repeat,
            "do": self._do,
            "local": self._local,
            "function": self._function,
            "return": self._return,
            "break": self._advance,
        }
        readers.get(self._next, self._call_or_assignment)()

    def _if(self) -> None:
        self._advance()
        self._condition("false")
        self._expect("then")
        self._block()
        while self._accept("elseif"):
            self._condition("false")
            self._expect("then")
            self._block()
        if self._accept("else"):
            self._block()
        self._expect("end")

    def _while(self) -> None:
        self._advance()
        self._condition("false")
        self._do()

    def _repeat(self) -> None:
        self._advance()
        self._block()
        self._expect("until")
        self._condition("true")

    def _function(self) -> None:
        self._advance()
        self._name()
        while self._accept(".", ":"):
            self._name()
        self._function_body()

    def _condition(self, replacement: str) -> None:
        mark = self._mark()
        self._expression()
        self._break(mark, replacement, NEUTRAL)

    def _do(self) -> None:
        self._expect("do")
        self._block()
        self._expect("end")

    def _for(self) -> None:
        self._advance()
        self._name()
        while self._accept(","):
            self._name()
        nothing = "1, 0" if self._accept("=") else "ipairs({})"
        if nothing != "1, 0":
            self._expect("in")
        mark = self._mark()
        self._expressions()
        self._break(mark, nothing, NEUTRAL)
        self._do()

    def _local(self) -> None:
        self._advance()
        if self._accept("function"):
            self._name()
            self._function_body()
            return
        name = self._name()
        while self._accept(","):
            self._name()
        if not self._accept("="):
            return
        mark, first = self._mark(), self._at
        self._expressions()
        if self._text_since(first) == _REDIS_CALLS[0]:
            self._aliases.add(name)
        self._break(mark, "false", NEUTRAL)

    def _return(self) -> None:
        self._advance()
        if self._next in _BLOCK_ENDS or self._next == ";":
            return
        mark = self._mark()
        self._expressions()
        self._break(mark, "false", NEUTRAL)

    def _call_or_assignment(self) -> None:
        mark = self._mark()
        self._suffixed()
        while self._accept(","):
            self._suffixed()
        if self._accept("="):
            self._expressions()
        self._break(mark, "", DELETE)

    # Expressions

    def _expressions(self) -> None:
        self._expression()
        while self._accept(","):
            self._expression()

    def _expression(self) -> None:
        while True:
            while self._accept(*_UNARY):
                pass
            self._operand()
            if not self._accept(*_BINARY):
                return

    def _operand(self) -> None:
        token = self._tokens[self._at]
        if token.kind in ("string", "number") or token.text in ("nil", "true", "false", "..."):
            self._advance()
        elif token.text == "function":
            self._advance()
            self._function_body()
        elif token.text == "{":
            self._table()
        else:
            self._suffixed()

    def _suffixed(self) -> None:
        first = self._at
        if self._accept("("):
            self._expression()
            self._expect(")")
        else:
            self._name()
        while True:
            if self._accept(".", ":"):
                self._name()
            elif self._accept("["):
                self._expression()
                self._expect("]")
            elif self._tokens[self._at].kind == "string" or self._next in ("(", "{"):
                if self._is_redis_call(first):
                    self._calls[-1] += 1
                self._arguments()
            else:
                return

    def _is_redis_call(self, first: int) -> bool:
        callee = self._text_since(first)
        return callee in _REDIS_CALLS or callee in self._aliases

    def _arguments(self) -> None:
        if self._next == "{":
            self._table()
        elif self._accept("("):
            if self._next != ")":
                self._expressions()
            self._expect(")")
        else:
            self._advance()

    def _table(self) -> None:
        self._expect("{")
        while not self._accept("}"):
            if self._accept("["):
                self._expression()
                self._expect("]")
                self._expect("=")
            elif self._tokens[self._at].kind == "name" and self._tokens[self._at + 1].text == "=":
                self._advance()
                self._advance()
            self._expression()
            if not self._accept(",", ";") and self._next != "}":
                self._expect("}")

    def _function_body(self) -> None:
        self._expect("(")
        while not self._accept(")"):
            self._advance()
        self._calls.append(0)
        self._block()
        self._calls.pop()
        self._expect("end")
