from __future__ import annotations

from typing import Any

import pytest

from pyasynq._redis.reply_errors import ReplyError
from pyasynq._redis.sentinel.search import Ask, Enter, Found, address_in, search
from pyasynq._redis.steps import Received
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import ConfigurationError, RedisAuthenticationError, RedisTLSError

TARGET = parse_redis_url("redis-sentinel://bob:r3dis@s1,s2,s3/4?master=m&sentinel_password=s3ntinel")
REFUSED = "nothing listens there"


def names(host: str) -> Received:
    """A Sentinel's answer."""
    return Received([[host.encode(), b"6379"]])


def perform(*answers: Any, seconds: float = 4.0) -> tuple[list[Ask | Enter], Any]:
    """Answer the steps of a search one after the other; return them and what came of it."""
    assert TARGET.sentinels is not None
    steps: list[Ask | Enter] = []
    searching = search(TARGET, TARGET.sentinels.addresses, seconds)
    try:
        steps.append(next(searching))
        for answer in answers:
            steps.append(searching.send(answer))  # noqa: PERF401 - the last one ends it, and the others count
    except StopIteration as stop:
        assert len(steps) == len(answers), "an answer was not asked for"
        return steps, stop.value
    pytest.fail(f"it wants more: {steps[-1]}")


@pytest.mark.parametrize("port", [b"x", b"-1", b"9" * 5_000, "²".encode(), b"\xff", None])
def test_an_address_that_is_none_is_no_answer(port: bytes | None) -> None:
    """Then the next Sentinel is asked."""
    assert address_in([b"h", port]) is None
    assert address_in([b"h", b"6379"]) == ("h", 6379)


def test_the_first_sentinel_that_answers_leads_to_the_primary() -> None:
    """Each is spoken to as the URL says: the Sentinels with their own login, the primary with Redis'."""
    steps, found = perform(REFUSED, names("p"), None)
    assert Found(("p", 6379), ("s2", 26379)) == found
    asked, asked_next, entered = steps
    assert isinstance(asked, Ask)
    assert isinstance(asked_next, Ask)
    assert ("s1", "s2", "p") == (asked.target.host, asked_next.target.host, entered.target.host)
    assert [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m")] == asked.commands
    assert (None, "s3ntinel", 0) == (asked.target.username, asked.target.password, asked.target.database)
    assert ("bob", "r3dis", 4) == (entered.target.username, entered.target.password, entered.target.database)
    assert (False, True) == (asked.target.must_be_primary, entered.target.must_be_primary)


def test_a_sentinel_of_the_past_does_not_keep_us_from_the_primary() -> None:
    """It names a server that is away or a replica, and the next one names another."""
    _, found = perform(names("old"), "it is a replica", names("new"), None)
    assert Found(("new", 6379), ("s2", 26379)) == found


def test_a_server_that_several_sentinels_name_is_tried_once() -> None:
    """And what is wrong with it is what is told, with its address."""
    steps, trouble = perform(names("p"), REFUSED, names("p"), names("p"))
    assert 4 == len(steps)
    assert "the primary is at p:6379: nothing listens there" == trouble


def test_the_time_is_shared_by_what_is_left_to_try() -> None:
    """One that swallows all that is sent leaves time for the others."""
    steps, _ = perform(REFUSED, REFUSED, REFUSED)
    assert [1.0, 4 / 3, 2.0] == [pytest.approx(step.seconds, abs=0.01) for step in steps]


def test_no_time_is_a_short_time() -> None:
    """Sockets take zero for no time-out, and refuse less."""
    steps, _ = perform(REFUSED, REFUSED, REFUSED, seconds=-1.0)
    assert [0.001] * 3 == [step.seconds for step in steps]


def test_sentinels_that_are_away_are_all_named() -> None:
    """It passes by itself, so it is text."""
    _, trouble = perform(REFUSED, Received([], "no reply within 1 s"), REFUSED)
    assert (
        "none of its Sentinels answers (s1:26379: nothing listens there; s2:26379: no reply within 1 s; "
        "s3:26379: nothing listens there); "
        "start them, or correct their addresses, whose port is 26379 unless given"
    ) == trouble


def test_an_unknown_name_is_an_error_that_names_the_known_ones() -> None:
    """It does not pass by itself."""
    known = Received([[[b"name", b"n", b"ip", b"1.2.3.4"], [b"name", b"tasks", b"ip", b"1.2.3.5"]]])
    unknown = Received([None])
    _, trouble = perform(unknown, known, REFUSED, unknown, Received([], "broken"))
    assert isinstance(trouble, ConfigurationError)
    assert (
        "the Sentinel at s1:26379 knows no primary 'm': correct master= in the URL; it knows 'n', 'tasks'"
    ) == str(trouble)


@pytest.mark.parametrize("code", ["NOAUTH", "WRONGPASS", "NOPERM"])
def test_a_sentinel_that_refuses_us_says_whose_login_is_meant(code: str) -> None:
    """The password before the hosts is not theirs."""
    for answer in (ReplyError(code, "no"), Received([ReplyError(code, "no")])):
        _, trouble = perform(answer, REFUSED, REFUSED)
        assert isinstance(trouble, RedisAuthenticationError)
        assert "the Sentinel at s1:26379 refused us: no; " in str(trouble)
        assert "sentinel_username= and sentinel_password= are for the Sentinels" in str(trouble)


def test_a_primary_that_refuses_us_says_whose_login_is_meant() -> None:
    """Asynq takes the password before the hosts for the Sentinels'."""
    _, trouble = perform(names("p"), ReplyError("WRONGPASS", "no"), REFUSED, REFUSED)
    assert isinstance(trouble, RedisAuthenticationError)
    assert "Redis at p:6379 refused us: no; " in str(trouble)
    assert "before the hosts of the URL are for Redis" in str(trouble)


def test_what_is_wrong_with_one_sentinel_does_not_matter_while_another_one_answers() -> None:
    """A primary that is away comes back, so this passes by itself."""
    wrong = Received([ReplyError("NOAUTH", "no")])
    _, trouble = perform(wrong, names("p"), REFUSED, Received([None]), Received([[]]))
    assert "the primary is at p:6379: nothing listens there" == trouble
    tls = RedisTLSError("s1:26379", "its certificate is not trusted")
    _, trouble = perform(tls, REFUSED, REFUSED)
    assert trouble is tls


def test_a_primary_that_is_loading_is_waited_for() -> None:
    """The server's own words decide, as with a single server."""
    loading = ReplyError("LOADING", "Redis is loading")
    _, trouble = perform(names("p"), loading, REFUSED, REFUSED)
    assert trouble is loading


@pytest.mark.parametrize(
    "reply", [ReplyError("ERR", "unknown command"), [b"h"], [b"h", b"x"], b"h", [1, 2], 7]
)
def test_what_is_no_sentinel_is_told_so(reply: Any) -> None:
    """A Redis, most often."""
    _, trouble = perform(Received([reply]), REFUSED, REFUSED)
    assert isinstance(trouble, ConfigurationError)
    assert "what answers at s1:26379 is no Sentinel (" in str(trouble)
    assert "connect to Redis itself by redis://" in str(trouble)
