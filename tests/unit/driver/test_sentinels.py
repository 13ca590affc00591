from __future__ import annotations

from typing import Any

import pytest

from pyasynq._redis.reply_errors import ReplyError
from pyasynq._redis.sentinel.search import AskSentinel, Enter, FoundPrimary, Named, find_primary, read_named
from pyasynq._redis.session import Received
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import ConfigurationError, RedisAuthenticationError, RedisTLSError

TARGET = parse_redis_url("redis-sentinel://bob:r3dis@s1,s2,s3/4?master=m&sentinel_password=s3ntinel")
REFUSED = "nothing listens there"


S1, S2, S3 = (("s1", 26379), ("s2", 26379), ("s3", 26379))


def names(host: str, epoch: int | None = None) -> Received:
    """A Sentinel's answer; without the right to SENTINEL MASTER it has no epoch."""
    fields = [b"name", b"m", b"config-epoch", str(epoch).encode(), b"quorum", b"2"]
    return Received([[host.encode(), b"6379"], ReplyError("NOPERM", "no") if epoch is None else fields])


def named(host: str, epoch: int | None = None) -> Named:
    """What such an answer says."""
    return Named((host, 6379), epoch)


def perform(*answers: Any, seconds: float = 4.0, **facts: Any) -> tuple[list[AskSentinel | Enter], Any]:
    """Answer the steps of a search one after the other; return them and its outcome."""
    steps: list[AskSentinel | Enter] = []
    searching = find_primary(TARGET, [S1, S2, S3], seconds, **facts)
    try:
        steps.append(next(searching))
        for answer in answers:
            steps.append(searching.send(answer))  # noqa: PERF401 - the last one ends it, and the others count
    except StopIteration as stop:
        assert len(steps) == len(answers), "an answer was not asked for"
        return steps, stop.value
    pytest.fail(f"it wants more: {steps[-1]}")


@pytest.mark.parametrize("port", [b"x", b"-1", b"9" * 5_000, "²".encode(), b"\xff", None])
def test_an_invalid_address_is_not_an_answer(port: bytes | None) -> None:
    """Then the next Sentinel is asked."""
    assert read_named(Received([[b"h", port]])) is None
    assert read_named(Received([[b"h", b"6379"]])) == named("h")


@pytest.mark.parametrize(
    "fields", [[], [b"config-epoch"], [b"config-epoch", b"x"], [b"config-epoch", 7], b"x", None]
)
def test_an_epoch_that_is_none_is_unknown(fields: object) -> None:
    """Then the number of Sentinels decides. (D63)"""
    assert named("h") == read_named(Received([[b"h", b"6379"], fields]))


def hosts(steps: list[AskSentinel | Enter]) -> list[str]:
    """Return who was spoken to."""
    return [step.target.host for step in steps]


def test_sentinels_that_agree_lead_to_the_primary() -> None:
    """Each is spoken to as the URL says: the Sentinels with their own login, the primary with Redis'."""
    steps, found = perform(REFUSED, names("p", 3), names("p", 3), None)
    assert FoundPrimary(named("p", 3), frozenset({S2, S3}), frozenset({S1})) == found
    assert ["s1", "s2", "s3", "p"] == hosts(steps)
    asked, entered = steps[0], steps[-1]
    assert isinstance(asked, AskSentinel)
    assert [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "m"), ("SENTINEL", "MASTER", "m")] == asked.commands
    assert (None, "s3ntinel", 0) == (asked.target.username, asked.target.password, asked.target.database)
    assert ("bob", "r3dis", 4) == (entered.target.username, entered.target.password, entered.target.database)
    assert (False, True) == (asked.target.must_be_primary, entered.target.must_be_primary)


def test_a_sentinel_of_the_past_does_not_keep_us_from_the_primary() -> None:
    """It names a server that is away or a replica, and the next one names another."""
    steps, found = perform(names("old"), names("new"), REFUSED, "it is a replica", None)
    assert ["s1", "s2", "s3", "old", "new"] == hosts(steps)
    assert FoundPrimary(named("new"), frozenset({S1, S2}), frozenset({S3})) == found


def test_more_than_half_that_agree_are_enough() -> None:
    """The others would not change much, and one of them may swallow all we send. (D63)"""
    steps, found = perform(names("p", 3), names("p", 3), None)
    assert ["s1", "s2", "p"] == hosts(steps)
    assert FoundPrimary(named("p", 3), frozenset({S1, S2}), frozenset()) == found


@pytest.mark.parametrize("order", [(7, 3, 3), (3, 7, 3), (3, 7, 7), (7, 3, 7)])
def test_the_highest_epoch_of_sentinels_that_disagree_is_believed(order: tuple[int, ...]) -> None:
    """A fail-over makes it higher, and what the old primary is told is lost. (D63)"""
    steps, found = perform(*(names(f"p{epoch}", epoch) for epoch in order), None)
    assert ["s1", "s2", "s3", "p7"] == hosts(steps)
    assert named("p7", 7) == found.named


def test_an_older_primary_is_not_entered_when_the_newer_one_is_away() -> None:
    """It may still say that it is a primary. (D63)"""
    steps, trouble = perform(names("old", 3), names("new", 7), REFUSED, REFUSED)
    assert ["s1", "s2", "s3", "new"] == hosts(steps)
    assert "the primary is at new:6379: nothing listens there" == trouble


def test_without_epochs_most_sentinels_are_believed() -> None:
    """As where the right to SENTINEL MASTER is missing. (D63)"""
    steps, found = perform(names("old"), names("new"), names("new"), None)
    assert ["s1", "s2", "s3", "new"] == hosts(steps)
    assert named("new") == found.named


def test_a_sentinel_alone_does_not_lead_back_to_an_older_primary() -> None:
    """This process knows better, from Sentinels that do not answer at the moment. (D63)"""
    steps, trouble = perform(names("old", 3), REFUSED, REFUSED, known=named("new", 7))
    assert ["s1", "s2", "s3"] == hosts(steps)
    assert "the Sentinels that answer name a primary from before new:6379" == trouble


def test_most_sentinels_lead_back_to_an_older_primary() -> None:
    """They have been set up again, so their epochs have begun again. (D63)"""
    _, found = perform(names("p", 0), names("p", 0), REFUSED, None, known=named("new", 7))
    assert named("p", 0) == found.named


def test_sentinels_that_were_silent_are_asked_only_if_the_others_lead_nowhere() -> None:
    """They may swallow what we send. (D63)"""
    steps, found = perform(names("p", 3), None, silent=[S2, S3])
    assert ["s1", "p"] == hosts(steps)
    assert named("p", 3) == found.named
    steps, found = perform(names("p", 3), REFUSED, names("q", 4), None, silent=[S2, S3])
    assert ["s1", "p", "s2", "q"] == hosts(steps)


def test_a_server_that_several_sentinels_name_is_tried_once() -> None:
    """And what is wrong with it is what is told, with its address."""
    steps, trouble = perform(names("p"), names("p"), REFUSED, names("p"))
    assert ["s1", "s2", "p", "s3"] == hosts(steps)
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
        "the Sentinel at s1:26379 does not know primary 'm': correct master= in the URL; "
        "it knows 'n', 'tasks'"
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
    _, trouble = perform(names("p"), REFUSED, REFUSED, ReplyError("WRONGPASS", "no"))
    assert isinstance(trouble, RedisAuthenticationError)
    assert "Redis at p:6379 refused us: no; " in str(trouble)
    assert "before the hosts of the URL are for Redis" in str(trouble)


def test_what_is_wrong_with_one_sentinel_does_not_matter_while_another_one_answers() -> None:
    """A primary that is away comes back, so this passes by itself."""
    wrong = Received([ReplyError("NOAUTH", "no")])
    _, trouble = perform(wrong, names("p"), Received([None]), Received([[]]), REFUSED)
    assert "the primary is at p:6379: nothing listens there" == trouble
    tls = RedisTLSError("s1:26379", "its certificate is not trusted")
    _, trouble = perform(tls, REFUSED, REFUSED)
    assert trouble is tls


def test_a_primary_that_is_loading_is_waited_for() -> None:
    """The server's own words decide, as with a single server."""
    loading = ReplyError("LOADING", "Redis is loading")
    _, trouble = perform(names("p"), REFUSED, REFUSED, loading)
    assert trouble is loading


@pytest.mark.parametrize(
    "reply", [ReplyError("ERR", "unknown command"), [b"h"], [b"h", b"x"], b"h", [1, 2], 7]
)
def test_the_error_about_a_server_that_is_not_a_sentinel_says_so(reply: Any) -> None:
    """A Redis, most often."""
    _, trouble = perform(Received([reply]), REFUSED, REFUSED)
    assert isinstance(trouble, ConfigurationError)
    assert "the server at s1:26379 is not a Sentinel (" in str(trouble)
    assert "connect to Redis itself by redis://" in str(trouble)
