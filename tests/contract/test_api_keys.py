"""API keys in Redis: made, rotated and deleted by compare-and-set, bounded, and audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.operating import api_keys as plans
from pyasynq._wire.keys import API_KEYS_KEY, api_key_bucket_key
from pyasynq.errors import ApiKeyNotFoundError, InvalidOptionError, RedisReplyError
from pyasynq.operations import User
from pyasynq.operations import sync as blocking
from pyasynq.operations.api_keys import encode_api_key, make_api_key, split_key_text
from tests.contract.test_operator_walk import _Clock
from tests.factories import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

ADMIN = User.with_role("mira", "admin")
MOMENT = NOW.to_datetime()


@pytest.fixture
def admin(redis_url: str, redis_client: RedisClient) -> Iterator[blocking.Operator]:
    """An administrator's operator, whose clock does not move."""
    with blocking.Operator(redis_url, ADMIN, clock=_Clock()) as one:
        yield one


def record(name: str) -> tuple[str, bytes]:
    """Return id and record of a new key."""
    key = make_api_key(name, ["work"], "*", by="root", expires_in=None, now=MOMENT).key
    return key.id, encode_api_key(key)


def secret_of(text: str) -> str:
    """Return the secret in a key's text."""
    split = split_key_text(text)
    assert split is not None
    return split[1]


def test_a_key_is_stored_without_its_secret(admin: blocking.Operator, redis_client: RedisClient) -> None:
    """And is found by its id."""
    issued = admin.make_api_key("billing", ["tasks:write"], ["bill*"], expires_in=60)

    assert issued.key == admin.api_key(issued.key.id)
    assert [issued.key] == admin.api_keys()
    assert ("billing", ("tasks:write",), ("bill*",), "mira") == (
        *(issued.key.name, issued.key.scopes, issued.key.patterns),
        issued.key.made_by,
    )
    assert secret_of(issued.text).encode() not in b"".join(redis_client.hvals(API_KEYS_KEY))
    assert admin.api_key("0" * 12) is None


def test_a_rotated_key_accepts_both_secrets(admin: blocking.Operator) -> None:
    """The id and what it may do stay; with an overlap of 0 the former secret ends."""
    first = admin.make_api_key("billing", ["work"])
    second = admin.rotate_api_key(first.key.id)
    stored = admin.api_key(first.key.id)
    assert stored == second.key
    assert stored.accepts(secret_of(first.text), MOMENT)
    assert stored.accepts(secret_of(second.text), MOMENT)

    third = admin.rotate_api_key(first.key.id, overlap=0)

    stored = admin.api_key(first.key.id)
    assert stored is not None
    assert [False, False, True] == [
        stored.accepts(secret_of(one.text), MOMENT) for one in (first, second, third)
    ]


def test_a_rotation_reads_again_what_another_one_has_changed(
    admin: blocking.Operator, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both new secrets are valid then, so neither caller holds a dead key."""
    first = admin.make_api_key("billing", ["work"])
    others: list[Any] = []
    read = plans.read_api_key

    def read_late(key_id: str) -> Any:
        found = yield from read(key_id)
        if not others:
            others.append(None)
            others[0] = admin.rotate_api_key(key_id)
        return found

    monkeypatch.setattr(plans, "read_api_key", read_late)
    mine = admin.rotate_api_key(first.key.id)

    stored = admin.api_key(first.key.id)
    assert stored is not None
    assert stored.accepts(secret_of(mine.text), MOMENT)
    assert stored.accepts(secret_of(others[0].text), MOMENT)


def test_a_deleted_key_is_gone(admin: blocking.Operator) -> None:
    """It can be neither rotated nor deleted again."""
    issued = admin.make_api_key("billing", ["work"])
    admin.delete_api_key(issued.key.id)

    assert admin.api_key(issued.key.id) is None
    with pytest.raises(ApiKeyNotFoundError):
        admin.delete_api_key(issued.key.id)
    with pytest.raises(ApiKeyNotFoundError):
        admin.rotate_api_key(issued.key.id)


def test_an_equal_record_is_stored_once(perform: Perform, redis_client: RedisClient) -> None:
    """A call that is sent again after its reply was lost answers as the first."""
    key_id, data = record("a")

    assert [1, 1] == [perform(plans.write_api_key(key_id, b"", data)) for _ in range(2)]
    assert {key_id.encode(): data} == redis_client.hgetall(API_KEYS_KEY)


def test_another_record_is_not_overwritten(perform: Perform, redis_client: RedisClient) -> None:
    """Neither a changed one, nor one that is there or gone."""
    key_id, data = record("a")
    _, other = record("b")
    assert 0 == perform(plans.write_api_key(key_id, other, data))
    perform(plans.write_api_key(key_id, b"", data))

    assert [0, 0] == [perform(plans.write_api_key(key_id, before, other)) for before in (b"", other[:-1])]
    assert data == perform(plans.read_api_key(key_id))
    assert 1 == perform(plans.write_api_key(key_id, data, other))
    assert {key_id: other} == perform(plans.read_api_keys())


def test_the_number_of_keys_is_bounded(admin: blocking.Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing ones can still be rotated."""
    monkeypatch.setattr(plans, "MAX_API_KEYS", 2)
    keys = [admin.make_api_key(name, ["work"]).key for name in ("a", "b")]

    with pytest.raises(InvalidOptionError, match="delete one"):
        admin.make_api_key("c", ["work"])

    admin.rotate_api_key(keys[1].id)
    assert ["a", "b"] == [key.name for key in admin.api_keys()]


def test_a_full_hash_is_told_apart_from_a_change(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for exactly as many as may be."""
    monkeypatch.setattr(plans, "MAX_API_KEYS", 1)
    (first, data), (second, other) = record("a"), record("b")

    assert [1, -1] == [
        perform(plans.write_api_key(*one)) for one in ((first, b"", data), (second, b"", other))
    ]
    assert 0 == perform(plans.write_api_key(second, data, other))


def test_all_keys_are_read_in_parts(perform: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may be full or not."""
    monkeypatch.setattr(plans, "_AT_ONCE", 2)
    records = dict(record(name) for name in "abcde")
    for key_id, data in records.items():
        perform(plans.write_api_key(key_id, b"", data))

    assert records == perform(plans.read_api_keys())


def test_values_of_others_are_left_out(admin: blocking.Operator, redis_client: RedisClient) -> None:
    """They open no door, and can be deleted."""
    redis_client.hset(API_KEYS_KEY, mapping={"a": "{}", "b": "[" * 10_000, "c": "null"})

    assert [] == admin.api_keys()
    assert admin.api_key("a") is None
    with pytest.raises(ApiKeyNotFoundError):
        admin.rotate_api_key("a")
    for name in "abc":
        admin.delete_api_key(name)


@pytest.mark.parametrize("value", [0, -1, float("inf"), "1h", 1e12])
def test_an_expiry_that_cannot_be_is_refused(admin: blocking.Operator, value: Any) -> None:
    """Nothing is stored."""
    with pytest.raises(InvalidOptionError, match="expires_in"):
        admin.make_api_key("a", ["work"], expires_in=value)
    assert [] == admin.api_keys()


def test_a_rate_is_stored_and_stays_at_a_rotation(admin: blocking.Operator) -> None:
    """The audit has it."""
    issued = admin.make_api_key("billing", ["work"], rate="50/s+10")
    admin.rotate_api_key(issued.key.id)

    stored = admin.api_key(issued.key.id)
    assert stored is not None
    assert ("50/s+10", issued.key.rate) == (stored.rate and stored.rate.text, stored.rate)
    assert "50/s+10" in str(admin.audit().entries[-1].details)


@pytest.mark.parametrize("rate", ["", "50", "50/s+0", "0/s", 50])
def test_a_rate_that_cannot_be_is_refused(admin: blocking.Operator, rate: Any) -> None:
    """Nothing is stored."""
    with pytest.raises(InvalidOptionError, match="rate"):
        admin.make_api_key("a", ["work"], rate=rate)
    assert [] == admin.api_keys()


def test_a_bucket_gives_its_burst_and_then_the_rate(perform: Perform, redis_client: RedisClient) -> None:
    """Each key has one of its own, which expires when it is full, and a minute."""
    two_a_second = (120.0, 60.0, 3)

    def spend(key_id: str = "a", after: float = 0.0) -> tuple[int, int, int, int]:
        return perform(plans.spend_request(key_id, two_a_second, NOW.plus(after)))

    assert [(1, 2, 0, 500_000), (1, 1, 0, 1_000_000), (1, 0, 0, 1_500_000)] == [spend() for _ in range(3)]
    assert (0, 0, 500_000, 1_500_000) == spend()
    assert (0, 0, 1, 1_000_001) == spend(after=0.499_999)
    assert (1, 0, 0, 1_500_000) == spend(after=0.5)
    assert (1, 2, 0, 500_000) == spend("b", after=0.5)
    assert (1, 2, 0, 500_000) == spend(after=60)
    assert 60 < redis_client.ttl(api_key_bucket_key("a")) <= 61
    assert 60 < redis_client.ttl(api_key_bucket_key("b")) <= 61


def test_a_bucket_of_a_wrong_type_admits_nothing(perform: Perform, redis_client: RedisClient) -> None:
    """And stays as it is."""
    redis_client.set(api_key_bucket_key("a"), "x")
    with pytest.raises(RedisReplyError):
        perform(plans.spend_request("a", (1.0, 1.0, 1), NOW))
    assert b"x" == redis_client.get(api_key_bucket_key("a"))
    redis_client.delete(api_key_bucket_key("a"))


def test_changes_are_audited_without_secrets(admin: blocking.Operator) -> None:
    """With what the key may do."""
    issued = admin.make_api_key("billing", ["work"], ["bill*"], reason="new team")
    admin.rotate_api_key(issued.key.id)
    admin.delete_api_key(issued.key.id)

    entries = admin.audit().entries
    assert ["delete_api_key", "rotate_api_key", "make_api_key"] == [entry.verb for entry in entries]
    assert "new team" == entries[-1].reason
    assert "bill*" in str(entries[-1].details)
    assert secret_of(issued.text) not in repr(entries)
