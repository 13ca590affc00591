"""Secrets, the places where they are found, and unchanged other text."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyasynq.errors import InvalidOptionError
from pyasynq.operations import MASK, Redactor, Withheld
from pyasynq.operations.redaction import check_not_redacted
from pyasynq.task import TaskInfo, TaskState

SECRET = "hunter2-of-the-night"


def task(**fields: Any) -> TaskInfo:
    """Return a failed task."""
    values: dict[str, Any] = {
        "id": "i",
        "queue": "q",
        "type": "t",
        "payload": b"{}",
        "state": TaskState.ARCHIVED,
        "max_retry": 1,
        "retried": 0,
        "timeout": None,
        "deadline": None,
        "next_process_at": None,
        "retention": timedelta(0),
    }
    return TaskInfo(**{**values, **fields})


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ('{"password":"x"}', f'{{"password":"{MASK}"}}'),
        (
            '{"a":1.10, "apiKey" : {"b":[1,2]} ,"c":12345678901234567890}',
            f'{{"a":1.10, "apiKey" : "{MASK}" ,"c":12345678901234567890}}',
        ),
        ('[{"user":{"access_token":null}}]', f'[{{"user":{{"access_token":"{MASK}"}}}}]'),
        ('{"api-key":"x","API_KEY":1}', f'{{"api-key":"{MASK}","API_KEY":"{MASK}"}}'),
        ('{"pass\\u0077ord":"x"}', f'{{"pass\\u0077ord":"{MASK}"}}'),
        ('{"p\\u0061ss":"x"}', f'{{"p\\u0061ss":"{MASK}"}}'),
        ('{"user":"a","n":1e400}', '{"user":"a","n":1e400}'),
        ('{"inner":"{\\"secret\\":\\"x\\"}"}', f'{{"inner":"{{\\"secret\\":\\"{MASK}\\"}}"}}'),
        ('{"note":"password: x y"}', f'{{"note":"password: {MASK} y"}}'),
        ("password=x&user=a", f"password={MASK}&user=a"),
        ('{"password":"x', f'{{"password":{MASK}'),
    ],
)
def test_a_payload_keeps_every_byte_that_is_not_secret(given_text: str, expected: str) -> None:
    """Numbers, spaces and the order of members stay; broken JSON is redacted as text."""
    assert expected == Redactor().data(given_text.encode()).decode()


@pytest.mark.parametrize(
    "data",
    [
        b"\xff password hunter2",
        pickle.dumps({"password": "hunter2"}),
        msgspec.msgpack.encode({"password": "x"}) + b"\xff",
        msgspec.msgpack.encode({"user": b"password=hunter2"}),
        msgspec.msgpack.encode({"user": "password=hunter2"}),
        msgspec.msgpack.encode({"password": "x", "user": "y" * 70_000}),
    ],
)
def test_bytes_in_another_format_that_name_a_secret_are_withheld(data: bytes) -> None:
    """Where the value ends is not known there, so none of it is shown."""
    shown = Redactor().data(data)
    assert isinstance(shown, Withheld)
    assert len(data) == shown.size


def test_messagepack_keeps_every_byte_that_is_not_secret() -> None:
    """Secrets within secrets go with the outer one; what is read behind them is what it was."""
    value = {"a": [1, {"token": {"x": [1, {"secret": 2}]}}], "password": "hunter2", "n": 2**64 - 1}
    shown = Redactor().data(msgspec.msgpack.encode(value))
    expected = {"a": [1, {"token": MASK}], "password": MASK, "n": 2**64 - 1}
    assert expected == msgspec.msgpack.decode(shown)


def test_a_secret_of_messagepack_is_replaced_in_errors_and_results() -> None:
    """It was noted when it was found; a result in another format is withheld."""
    payload = msgspec.msgpack.encode({"password": [SECRET]})
    failed = task(payload=payload, last_error=f"no login with {SECRET}", result=b"\xff" + SECRET.encode())
    shown = Redactor().task(failed, payload_view=True)
    assert f"no login with {MASK}" == shown.last_error
    assert isinstance(shown.result, Withheld)


@given(
    st.recursive(
        st.one_of(
            st.none(), st.integers(-(2**63), 2**64 - 1), st.text("xé", max_size=3), st.binary(max_size=2)
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["user", "password", "note"]), inner, max_size=3),
        ),
        max_leaves=12,
    ).filter(lambda value: isinstance(value, list | dict))
)
def test_messagepack_without_secrets_is_what_the_library_reads(value: Any) -> None:
    """The reader finds the spans that the library has written, whatever the values."""

    def masked(one: Any) -> Any:
        if isinstance(one, dict):
            return {name: MASK if name == "password" else masked(inner) for name, inner in one.items()}
        return [masked(inner) for inner in one] if isinstance(one, list) else one

    shown = Redactor().data(msgspec.msgpack.encode(value))
    assert masked(value) == msgspec.msgpack.decode(shown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("login failed: password='hunter2'", f"login failed: password={MASK}"),
        ("GET /?token=abc&x=1", f"GET /?token={MASK}&x=1"),
        ("redis://user:hunter2@host/0", f"redis://user:{MASK}@host/0"),
        ("Authorization: Bearer abcdefgh.ijkl", f"Authorization: {MASK}"),
        ("sent Bearer abcdefgh.ijkl", f"sent Bearer {MASK}"),
        ("TokenError: no such user", "TokenError: no such user"),
        ("AuthenticationError: host unknown", "AuthenticationError: host unknown"),
        ("the token has expired", "the token has expired"),
    ],
)
def test_text_loses_what_is_assigned_to_a_secret_name(text: str, expected: str) -> None:
    """The class of an error stays, whatever its name; redacted again, the text stays the same."""
    assert expected == Redactor().text(text)
    assert expected == Redactor().text(expected)


def test_a_mask_that_is_written_in_front_of_a_secret_does_not_save_it() -> None:
    """Only the whole mask counts as redacted."""
    assert f"password={MASK}" == Redactor().text(f"password={MASK}hunter2")


def test_a_secret_of_the_payload_is_found_in_every_other_part_of_the_task() -> None:
    """An error that quotes the password does not call it one."""
    payload = json.dumps({"password": SECRET, "pin_token": 987654}).encode()
    given_task = task(
        payload=payload,
        last_error=f"no login as {SECRET}",
        traceback=f"  f({SECRET!r}, 987654)",
        result=f'"{SECRET}"'.encode(),
        headers={"cookie": "c", "note": SECRET},
    )
    shown = Redactor().task(given_task, payload_view=True)
    assert f"no login as {MASK}" == shown.last_error
    assert f"  f('{MASK}', {MASK})" == shown.traceback
    assert f'"{MASK}"'.encode() == shown.result
    assert {"cookie": MASK, "note": MASK} == shown.headers


@pytest.mark.parametrize(
    ("published", "payload", "expected"),
    [
        (["pin"], '{"a":{"Pin":[2]},"spin":3}', f'{{"a":{{"Pin":"{MASK}"}},"spin":3}}'),
        (
            ["card.number"],
            '{"number":1,"holder":{"number":2},"Card":{"number":3,"x":4}}',
            f'{{"number":1,"holder":{{"number":2}},"Card":{{"number":"{MASK}","x":4}}}}',
        ),
        (
            ["keys[].value"],
            '{"keys":[{"value":1,"v":2},{"value":[3]}],"value":4}',
            f'{{"keys":[{{"value":"{MASK}","v":2}},{{"value":"{MASK}"}}],"value":4}}',
        ),
        (["pins[]"], '{"pins":["abc",{"x":1},[2]],"x":3}', f'{{"pins":["{MASK}","{MASK}","{MASK}"],"x":3}}'),
        (["pins[]"], '{"pins":{"a":1,"b":{}},"x":3}', f'{{"pins":{{"a":"{MASK}","b":"{MASK}"}},"x":3}}'),
        (["[]"], '[1,"a",{"b":2}]', f'["{MASK}","{MASK}","{MASK}"]'),
        (["a.b"], '{"a.b":1,"a":{"b":2,"c":3}}', f'{{"a.b":"{MASK}","a":{{"b":"{MASK}","c":3}}}}'),
        (["rows[][]"], '{"rows":[[1,2],[3]]}', f'{{"rows":[["{MASK}","{MASK}"],["{MASK}"]]}}'),
    ],
)
def test_a_published_field_is_secret_at_its_path(published: list[str], payload: str, expected: str) -> None:
    """A name without a path is secret wherever it stands, in any case."""
    redactor = Redactor(r"\bnothing\b").with_secret_fields(lambda task_type: published)
    assert expected == redactor.data(payload.encode(), "t").decode()


def test_a_published_field_is_secret_for_its_type_only() -> None:
    """In errors and in MessagePack too, where the path is not known."""
    fields = {"pay": ["account.number", "pin"]}
    redactor = Redactor(secret_fields=lambda task_type: fields.get(task_type, ()))
    assert (f"pin={MASK} spin=2", "pin=1 spin=2") == (
        redactor.text("pin=1 spin=2", "pay"),
        redactor.text("pin=1 spin=2", "other"),
    )
    packed = msgspec.msgpack.encode({"number": 7, "x": 1})
    assert {"number": MASK, "x": 1} == msgspec.msgpack.decode(redactor.data(packed, "pay"))
    assert packed == redactor.data(packed, "other")


def test_a_secret_at_a_path_is_sought_in_the_rest_of_the_task() -> None:
    """Errors hide the value, like the value of any other secret."""
    redactor = Redactor(secret_fields=lambda task_type: ["login[].code"])
    failed = task(payload=b'{"login":[{"code":"4321-9"}]}', last_error="no code 4321-9")
    assert f"no code {MASK}" == redactor.task(failed, payload_view=True).last_error


def test_without_payload_view_a_task_keeps_its_facts_and_the_kind_of_its_error() -> None:
    """Numbers, ids and quotations of the error go; they may be somebody's data."""
    shown = Redactor().task(
        task(
            payload=b"abc", headers={"a": "b"}, result=b"", last_error="KeyError: 'alice' 12", traceback="x"
        ),
        payload_view=False,
    )
    assert (b"[withheld: 3 bytes]", b"[withheld: 0 bytes]") == (shown.payload, shown.result)
    assert ({}, "KeyError: <text> <n>", "") == (shown.headers, shown.last_error, shown.traceback)
    assert ("i", TaskState.ARCHIVED) == (shown.id, shown.state)


def test_the_users_hook_is_applied_last() -> None:
    """It sees the task as it would be shown; None changes nothing."""
    redactor = Redactor(hook=lambda one: replace(one, payload=one.payload.replace(b"42", b"?")))
    assert b'{"user":?}' == redactor.task(task(payload=b'{"user":42}'), payload_view=True).payload
    assert b"{}" == Redactor(hook=lambda one: None).task(task(), payload_view=True).payload


def test_a_hook_that_fails_withholds_the_task() -> None:
    """What it would have hidden stays hidden."""

    def fail(one: TaskInfo) -> TaskInfo:
        raise KeyError

    assert isinstance(Redactor(hook=fail).task(task(), payload_view=True).payload, Withheld)


def test_secret_fields_of_a_type_are_secrets_too() -> None:
    """Such as those that the type's worker has published."""
    redactor = Redactor(secret_fields=lambda name: ["PIN"] if name == "t" else [])
    assert (
        f'{{"pin":"{MASK}"}}'.encode() == redactor.task(task(payload=b'{"pin":1}'), payload_view=True).payload
    )
    other = task(payload=b'{"pin":1}', type="other")
    assert b'{"pin":1}' == redactor.task(other, payload_view=True).payload


def test_a_redacted_payload_is_not_written_back() -> None:
    """It would destroy the secret."""
    check_not_redacted("payload", b'{"password":"x"}')
    with pytest.raises(InvalidOptionError, match=r"contains \[redacted\]"):
        check_not_redacted("payload", f'{{"password":"{MASK}"}}'.encode())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


# Hypothesis takes a thread of another test that draws a random number for a strategy that does.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
@given(_JSON, st.booleans())
def test_json_stays_json_and_loses_exactly_the_named_values(value: Any, ascii_only: bool) -> None:
    """Compared with the same replacement made on decoded values."""
    document = {"login": {"passphrase": value, "user": value}}
    redactor = Redactor("^passphrase$")
    shown = redactor.data(json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))
    assert {"login": {"passphrase": MASK, "user": value}} == json.loads(shown)
