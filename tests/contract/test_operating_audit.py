"""The two streams of the audit: what is appended, replaced, counted and read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyasynq._broker.operating import audit
from pyasynq._broker.operating.audit import read_audit, read_refused, write_audit, write_refusal
from pyasynq._wire.keys import AUDIT_KEY, REFUSED_KEY
from tests.contract.test_full_redis import full, perform_when_full  # noqa: F401 - fixtures
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def entry(verb: str = "pause_queue", **values: Any) -> bytes:
    """Return an entry as it is written."""
    return json.dumps({"at": 5.0, "user": "mira", "verb": verb, **values}).encode()


def verbs(written: list[Any]) -> list[str]:
    """Return the verbs of entries."""
    return [json.loads(one.entry)["verb"] for one in written]


def test_entries_are_read_newest_first_and_page_by_page(perform: Perform, redis_client: RedisClient) -> None:
    """A page goes on before a position."""
    positions = [perform(write_audit(entry(verb))) for verb in "abc"]
    assert ["c", "b"] == verbs(perform(read_audit("", 2)))
    assert ["a"] == verbs(perform(read_audit(positions[1], 2)))
    assert [] == perform(read_audit(positions[0], 2))


def test_the_result_takes_the_place_of_the_intent(perform: Perform, redis_client: RedisClient) -> None:
    """So what is announced and has no result stays, and tells of a process that died."""
    first = perform(write_audit(entry("a")))
    perform(write_audit(entry("b")))
    perform(write_audit(entry("a", outcome="done"), intent=first))
    written = perform(read_audit("", 9))
    assert ["a", "b"] == verbs(written)
    assert "done" == json.loads(written[0].entry)["outcome"]


def test_an_entry_that_is_sent_again_is_written_once(redis_client: RedisClient) -> None:
    """The nonce tells; the position is that of the first time."""
    again = BlockingPerformer(redis_client, replay=True)
    position = again(write_audit(entry("a")))
    assert ["a"] == verbs(again(read_audit("", 9)))
    assert position == redis_client.xrange(AUDIT_KEY)[0][0].decode()


def test_the_audit_has_a_bound(
    perform: Perform, redis_client: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest entries go, in portions of a hundred."""
    monkeypatch.setattr(audit, "AUDIT_LENGTH", 100)
    monkeypatch.setattr(audit, "REFUSED_LENGTH", 100)
    for number in range(310):
        perform(write_audit(entry(str(number))))
        perform(write_refusal(entry(str(number)), f"user {number}"))
    assert 100 <= redis_client.xlen(AUDIT_KEY) <= 210
    assert 100 <= redis_client.xlen(REFUSED_KEY) <= 210
    assert ["309", "308"] == verbs(perform(read_audit("", 2)))


def test_ten_refusals_a_minute_of_a_user_are_kept_and_the_others_counted(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Refusals of one user do not push out those of others."""
    perform(write_refusal(entry("other"), "other"))
    counts = [perform(write_refusal(entry(str(number)), "mira\n10.0.0.1")) for number in range(13)]
    assert [0] * 10 + [1, 2, 3] == counts
    written = perform(read_refused("", 99))
    assert [*map(str, range(9, -1, -1)), "other"] == verbs(written)
    assert [3, *[0] * 10] == [one.more for one in written]


def test_after_a_minute_a_refusal_has_an_entry_again(perform: Perform, redis_client: RedisClient) -> None:
    """Old entries are kept, and no longer counted against the user."""
    seconds, _ = redis_client.time()
    for number in range(10):
        position = f"{(seconds - 61) * 1000}-{number + 1}"
        redis_client.xadd(REFUSED_KEY, {"who": "mira", "more": 0, "entry": entry()}, id=position)
    assert 0 == perform(write_refusal(entry(), "mira"))
    assert 11 == redis_client.xlen(REFUSED_KEY)


def test_foreign_entries_are_left_out(
    perform: Perform, redis_client: RedisClient, damage_allowed: None
) -> None:
    """Any entry may be in the stream: reading continues."""
    redis_client.xadd(REFUSED_KEY, {"a": "b"})
    redis_client.xadd(REFUSED_KEY, {"who": "w", "more": "many", "entry": "e"})
    redis_client.xadd(AUDIT_KEY, {"a": "b"})
    assert [] == perform(read_refused("", 9))
    assert [] == perform(read_audit("", 9))


def test_a_full_redis_takes_entries(
    redis_client: RedisClient,
    perform_when_full: Perform,  # noqa: F811 - a fixture
    full: Callable[[], None],  # noqa: F811 - a fixture
) -> None:
    """It is when Redis is full that operators must act."""
    redis_client.config_set("maxmemory-policy", "noeviction")
    full()
    intent = perform_when_full(write_audit(entry("a")))
    perform_when_full(write_audit(entry("b"), intent=intent))
    assert 0 == perform_when_full(write_refusal(entry(), "mira"))
    assert ["b"] == verbs(perform_when_full(read_audit("", 9)))
