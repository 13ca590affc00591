"""API keys: their text, what they accept and for how long, their scopes, and their records."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyasynq.errors import InvalidOptionError
from pyasynq.operations import SCOPES, IssuedApiKey, Permission, ProgramPermission, RequestRate
from pyasynq.operations.api_keys import (
    decode_api_key,
    encode_api_key,
    issue_secret,
    make_api_key,
    split_key_text,
)

NOW = datetime(2026, 11, 26, 9, 0, 0, 250_000, tzinfo=UTC)
DAY = timedelta(days=1)


def make(**settings: Any) -> IssuedApiKey:
    """Return a new key that does not expire."""
    given = {"name": "billing", "scopes": ["work"], "patterns": ["*"], "by": "mira", "expires_in": None}
    return make_api_key(**{**given, "now": NOW, **settings})


def secret_of(issued: IssuedApiKey) -> str:
    """Return the secret in a key's text."""
    split = split_key_text(issued.text)
    assert split is not None
    return split[1]


def test_a_text_has_the_id_and_256_random_bits() -> None:
    """Another key has others."""
    one, other = make(), make()

    assert (one.key.id, 64) == (one.text.split("_")[1], len(secret_of(one)))
    assert one.key.accepts(secret_of(one), NOW)
    assert not one.key.accepts(secret_of(other), NOW)
    assert one.key.id != other.key.id


def test_every_mistyped_character_is_told_without_redis() -> None:
    """The checksum sees it, or the form does."""
    text = make().text
    wrong = [f"{text[:at]}{'1' if char == '0' else '0'}{text[at + 1 :]}" for at, char in enumerate(text)]
    wrong += [text[:-1], text + "0", text.upper(), f" {text}", f"{text}\n", ""]

    assert [None] * len(wrong) == list(map(split_key_text, wrong))


def test_a_key_and_its_record_show_no_secret() -> None:
    """Neither in Redis nor in a log."""
    issued = make()

    assert secret_of(issued) not in repr(issued)
    assert secret_of(issued).encode() not in encode_api_key(issued.key)
    assert issued.key.secrets[0].digest not in repr(issued.key)


def test_a_key_ends_at_its_expiry() -> None:
    """To the second."""
    issued = make(expires_in=DAY)
    end = NOW.replace(microsecond=0) + DAY

    assert issued.key.accepts(secret_of(issued), end - timedelta(microseconds=1))
    assert not issued.key.accepts(secret_of(issued), end)
    assert issued.key.is_expired(end)


def test_after_a_rotation_the_former_secret_ends_with_the_overlap() -> None:
    """The new one stays; a further rotation ends the oldest at once."""
    first = make()
    second = issue_secret(first.key, overlap=DAY, now=NOW)
    end = NOW.replace(microsecond=0) + DAY

    assert second.key.accepts(secret_of(second), end)
    assert second.key.accepts(secret_of(first), end - timedelta(seconds=1))
    assert not second.key.accepts(secret_of(first), end)
    third = issue_secret(second.key, overlap=DAY, now=NOW).key
    assert third.accepts(secret_of(second), NOW)
    assert not third.accepts(secret_of(first), NOW)


def test_without_an_overlap_the_former_secret_ends_at_once() -> None:
    """For a key that was in a log."""
    first = make()
    second = issue_secret(first.key, overlap=None, now=NOW)

    assert not second.key.accepts(secret_of(first), NOW)
    assert second.key.accepts(secret_of(second), NOW)
    assert first.key.id == second.key.id


def test_a_record_is_read_as_it_was_written() -> None:
    """Also during a rotation."""
    first = make(expires_in=DAY, patterns=["a*", "größe"], scopes=["work", "tasks:read"])
    key = issue_secret(first.key, overlap=DAY, now=NOW).key

    assert key == decode_api_key(key.id, encode_api_key(key))
    assert ("tasks:read", "work") == key.scopes


def test_a_rate_is_kept_by_record_and_rotation() -> None:
    """A record without one is of a key that may send any number."""
    first = make(rate=" 50/s+10 ")
    assert first.key.rate == RequestRate("50/s+10", 50.0, 1.0, 10)

    key = issue_secret(first.key, overlap=DAY, now=NOW).key

    assert first.key.rate == key.rate
    assert key == decode_api_key(key.id, encode_api_key(key))
    assert make().key.rate is None
    assert b"rate" not in encode_api_key(make().key)


@pytest.mark.parametrize("rate", [b'"fast"', b"5", b"null", b'"0/s"'])
def test_a_record_with_a_wrong_rate_is_not_a_key(rate: bytes) -> None:
    """A limit that cannot be read must not become none."""
    data = encode_api_key(make(rate="50/s").key).replace(b'"50/s"', rate)
    assert decode_api_key("a", data) is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"1", b"{", b"[" * 100_000, b'{"name":1}'])
def test_other_values_are_not_keys(data: bytes) -> None:
    """Redis may hold anything."""
    assert decode_api_key("a", data) is None


def test_a_record_with_a_wrong_time_is_not_a_key() -> None:
    """A key whose end cannot be read must not last for ever."""
    data = encode_api_key(make(expires_in=DAY).key).replace(b'"until":1', b'"until":"x1', 1)
    assert decode_api_key("a", data) is None


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "100 characters"),
        ({"scopes": []}, "at least one"),
        ({"scopes": ["tasks:wirte"]}, "did you mean 'tasks:write'"),
        ({"patterns": []}, "1 to 50"),
        ({"patterns": ["a"] * 51}, "1 to 50"),
        ({"patterns": ["x" * 201]}, "200 characters"),
        ({"patterns": [" "]}, "patterns"),
        ({"expires_in": timedelta.max}, "year 9999"),
    ],
)
def test_a_key_that_cannot_be_is_refused(settings: dict[str, Any], remedy: str) -> None:
    """The error names the field."""
    with pytest.raises(InvalidOptionError, match=remedy):
        make(**settings)


def test_a_key_has_the_permissions_of_its_scopes_for_its_queues() -> None:
    """And no others."""
    user = make(scopes=["tasks:write"], patterns=["a*", "b"]).key.to_user("10.0.0.7")

    assert SCOPES["tasks:write"] == set(user.grants)
    assert ("a*", "b") == user.patterns(Permission.TASKS_ENQUEUE)
    assert () == user.patterns(ProgramPermission.WORK_LEASE)
    assert ("key", "10.0.0.7") == (user.login, user.address)


def test_admin_includes_all_scopes() -> None:
    """Each permission of the others is among its own."""
    key = make(scopes=["admin"]).key

    assert set(SCOPES) == key.all_scopes
    assert all(permissions <= SCOPES["admin"] for permissions in SCOPES.values())
    assert {"work"} == make().key.all_scopes


def test_a_scope_of_a_later_version_grants_nothing() -> None:
    """An older service reads the record too."""
    key = dataclasses.replace(make().key, scopes=("work", "later"))

    assert SCOPES["work"] == set(key.to_user().grants)
