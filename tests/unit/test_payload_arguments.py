"""A handler's arguments as one JSON object."""

from __future__ import annotations

import json
import typing
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._payload import ArgumentsCodec, ResultCodec
from pyasynq.errors import (
    ArgumentsError,
    ConfigurationError,
    PayloadDecodingError,
    PayloadEncodingError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def codec_of(function: Callable[..., Any]) -> ArgumentsCodec:
    """Return the codec of a function as the app makes it."""
    return ArgumentsCodec(function, typing.get_type_hints(function), owner="task 'mail'")


def deliver(user_id: int, template: str = "welcome", *, on: date | None = None) -> None:
    """A handler."""


def all_optional(a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0, f: int = 0, g: int = 0) -> None:
    """A handler that can be called in more ways than are remembered."""


ONES = [{name: 1 for at, name in enumerate("abcdefg") if number >> at & 1} for number in range(2**7)]
"""Each choice of its arguments."""


def test_the_payload_is_the_signature_in_declaration_order_with_defaults() -> None:
    """Positional, by name, in any order, default written out or not: one call, one payload."""
    codec = codec_of(deliver)
    payload = b'{"user_id":1,"template":"welcome","on":null}'
    for _ in range(2):
        assert payload == codec.encode((1,), {})
        assert payload == codec.encode((), {"user_id": 1})
        assert payload == codec.encode((1, "welcome"), {"on": None})
        assert payload == codec.encode((), {"on": None, "template": "welcome", "user_id": 1})


def test_calls_are_checked_one_by_one_however_alike_those_before_were() -> None:
    """The same names with other types are converted or refused, also when many kinds of call have been."""
    codec = codec_of(deliver)
    for _ in range(2):
        assert b'{"user_id":1,"template":"x","on":null}' == codec.encode((1, "x"), {})
        dated = codec.encode((1, "x"), {"on": date(2026, 1, 2)})
        assert b'{"user_id":1,"template":"x","on":"2026-01-02"}' == dated
        with pytest.raises(PayloadEncodingError, match="argument user_id: expected int, got str"):
            codec.encode(("1", "x"), {})
        with pytest.raises(ArgumentsError, match="multiple values for argument 'user_id'"):
            codec.encode((1,), {"user_id": 1})


def test_more_kinds_of_call_than_are_remembered_are_encoded_all_the_same() -> None:
    """Optional arguments may be left out in many ways."""
    codec = codec_of(all_optional)
    for given in ONES:
        assert dict.fromkeys("abcdefg", 0) | given == json.loads(codec.encode((), given))


def test_a_payload_is_utf8_and_not_escaped() -> None:
    """The text is the one that Go writes, except that HTML signs are not escaped."""
    assert '{"user_id":1,"template":"Grüße","on":null}' == codec_of(deliver).encode((1, "Grüße"), {}).decode()


def test_decoding_gives_the_keyword_arguments() -> None:
    """The values have the types that the function declares."""
    payload = b'{"user_id":1,"template":"x","on":"2026-01-02"}'
    assert {"user_id": 1, "template": "x", "on": date(2026, 1, 2)} == codec_of(deliver).decode(payload)


def test_an_argument_with_a_default_may_be_missing_from_a_payload() -> None:
    """A parameter added with a default does not break the tasks that wait in Redis."""
    assert {"user_id": 1} == codec_of(deliver).decode(b'{"user_id":1}')


def test_no_payload_is_a_call_without_arguments() -> None:
    """Go's nil payload."""

    def sweep() -> None: ...

    assert {} == codec_of(sweep).decode(b"")
    assert b"{}" == codec_of(sweep).encode((), {})


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"{}", "the payload does not fit the arguments: missing 'user_id'"),
        (b'{"usr_id":1}', "missing 'user_id'; unknown 'usr_id'"),
        (b'{"user_id":1,"a":1,"b":2}', "unknown 'a', 'b'"),
        (b"[1]", "not a JSON object with arguments"),
        (b"1", "not a JSON object"),
        (b"secret", "the payload is unusable: it is not JSON"),
        (b'{"user_id":"secret"}', "task 'mail', argument user_id: expected int, got text"),
        (b'{"user_id":1,"on":"secret"}', "argument on: expected date, got text that is none"),
    ],
)
def test_a_payload_that_does_not_fit_is_a_failure_that_names_the_argument(
    payload: bytes, message: str
) -> None:
    """The error does not show the value."""
    with pytest.raises(PayloadDecodingError, match=message) as caught:
        codec_of(deliver).decode(payload)
    assert "secret" not in str(caught.value)


def test_payloads_are_checked_one_by_one_however_alike_those_before_were() -> None:
    """The same names with other types are converted or refused, also when many kinds of payload have been."""
    codec = codec_of(deliver)
    for _ in range(2):
        assert {"user_id": 1} == codec.decode(b'{"user_id":1}')
        assert date(2026, 1, 2) == codec.decode(b'{"user_id":1,"on":"2026-01-02"}')["on"]
        with pytest.raises(PayloadDecodingError, match="argument user_id: expected int, got text"):
            codec.decode(b'{"user_id":"1"}')
        with pytest.raises(PayloadDecodingError, match="missing 'user_id'"):
            codec.decode(b'{"on":null}')
    assert {"user_id": 1, "on": None} == codec.decode(b'{"user_id":1,"on":null}')


def test_more_kinds_of_payload_than_are_remembered_are_decoded_all_the_same() -> None:
    """Optional arguments may be left out in many ways."""
    codec = codec_of(all_optional)
    for given in ONES:
        assert given == codec.decode(json.dumps(given).encode())
    with pytest.raises(PayloadDecodingError, match="argument a: expected int, got text"):
        codec.decode(b'{"a":"1"}')


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required argument: 'user_id'"),
        ((1, "x", 3), {}, "too many positional arguments"),
        ((1,), {"user_id": 1}, "multiple values for argument 'user_id'"),
        ((), {"usr_id": 1}, "task 'mail' has no argument 'usr_id'; did you mean 'user_id'?"),
        ((1,), {"process_in": 5}, r"it is an option: write .options\(process_in=...\).enqueue"),
    ],
)
def test_a_call_that_does_not_fit_is_a_type_error(args: Any, kwargs: Any, message: str) -> None:
    """As calling the function would be, with a suggestion."""
    with pytest.raises(ArgumentsError, match=message) as caught:
        codec_of(deliver).encode(args, kwargs)
    assert isinstance(caught.value, TypeError)


def test_an_argument_that_json_cannot_carry_is_named() -> None:
    """For wrong types, infinities, lone surrogates and endless values alike."""

    def handler(user_id: int, rate: float, note: str, extra: Any) -> None: ...

    codec = codec_of(handler)
    endless: list[Any] = []
    endless.append(endless)
    good = {"user_id": 1, "rate": 1.0, "note": "", "extra": None}
    bad = {"user_id": object(), "rate": float("inf"), "note": "\ud800", "extra": endless}
    for name, value in bad.items():
        with pytest.raises(PayloadEncodingError, match=f"task 'mail', argument {name}"):
            codec.encode((), {**good, name: value})
    with pytest.raises(PayloadEncodingError, match=r"argument extra\[1\]"):
        codec.encode((), {**good, "extra": [1, {2}]})
    with pytest.raises(PayloadEncodingError, match="argument user_id: a whole number has more digits"):
        codec.encode((), {**good, "user_id": 10**5000})


def positional_only(a: int, /) -> None:
    """A payload has names only."""


def variable(*args: int) -> None:
    """A payload cannot name them."""


def keywords(**kwargs: int) -> None:
    """A payload cannot check them."""


def unsupported(a: complex) -> None:
    """JSON has no such number."""


def wrong_default(a: int = "1") -> None:  # type: ignore[assignment]
    """The default does not fit."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (positional_only, "parameter 'a' is positional-only and payloads carry names; remove the '/'"),
        (variable, "parameter 'args' collects positional arguments; take one list instead"),
        (keywords, "parameter 'kwargs' collects keyword arguments; take one dict instead"),
        (unsupported, "task 'mail', parameter 'a': JSON cannot carry complex"),
        (wrong_default, "default of parameter 'a': expected int, got str"),
    ],
)
def test_a_signature_that_no_payload_can_carry_is_refused(function: Callable[..., Any], message: str) -> None:
    """At declaration, naming the parameter and the remedy."""
    with pytest.raises(ConfigurationError, match=message):
        codec_of(function)


def test_a_result_is_json_by_the_return_annotation() -> None:
    """The same table as for arguments."""
    codec = ResultCodec(date, owner="task 'mail'")
    assert b'"2026-01-02"' == codec.encode(date(2026, 1, 2))
    assert date(2026, 1, 2) == codec.decode(b'"2026-01-02"')


def test_a_result_that_does_not_fit_says_so() -> None:
    """A type without JSON cannot be the return type of a task."""
    with pytest.raises(PayloadEncodingError, match="the result of task 'mail': expected date, got str"):
        ResultCodec(date, owner="task 'mail'").encode("x")
    with pytest.raises(PayloadDecodingError, match="the result of task 'mail': expected date"):
        ResultCodec(date, owner="task 'mail'").decode(b'"x"')
    with pytest.raises(ConfigurationError, match="task 'mail', return annotation: JSON cannot carry complex"):
        ResultCodec(complex, owner="task 'mail'")


def test_the_page_shows_the_error_of_an_unsupported_type_as_it_is() -> None:
    """Word for word, with all remedies."""

    class User: ...

    def deliver(user: User) -> None: ...

    with pytest.raises(ConfigurationError) as raised:
        ArgumentsCodec(deliver, {"user": User}, owner="task 'email:deliver'")
    page = (Path(__file__).parents[2] / "docs" / "payloads.md").read_text(encoding="utf-8")
    assert str(raised.value) in page.replace("\n", " ")
