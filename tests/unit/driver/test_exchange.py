from __future__ import annotations

from typing import Any

import pytest

from pyasynq._embedded.errors import EmbeddedServerError
from pyasynq._redis.exchange import exchange
from pyasynq._redis.plan import Replay
from pyasynq._redis.reply_errors import ReplyError
from pyasynq._redis.session import Open, Received, Send
from pyasynq.errors import (
    RedisAuthenticationError,
    RedisOutOfMemoryError,
    RedisPermissionError,
    RedisReplyError,
    RedisUnavailableError,
    RedisVersionError,
    ReplyLostError,
)
from tests.unit.driver.scripted import GREETING, ONE, ScriptedServer, call, command, evalsha, script

NOSCRIPT = ReplyError("NOSCRIPT", "No matching script.")
TWO = script("test/two")


def test_replies_come_back_in_the_order_of_the_calls() -> None:
    """One send, one reply each, nothing else asked."""
    server = ScriptedServer([1, b"two"])
    assert [1, b"two"] == server.exchange(call(), command("GET", "k"))
    assert [[evalsha(), ("GET", "k")]] == server.asked


def test_a_missing_script_is_loaded_and_only_its_calls_are_sent_again() -> None:
    """The reply that came the first time stands; two calls of one script load it once."""
    server = ScriptedServer([1, NOSCRIPT, NOSCRIPT], [b"sha"], [2, 3])
    assert [1, 2, 3] == server.exchange(command("GET", "k"), call(arg="a"), call(arg="b"))
    text = ONE.form(True).text
    assert [[("SCRIPT", "LOAD", text)], [evalsha(arg="a"), evalsha(arg="b")]] == server.asked[1:]


def test_all_missing_scripts_are_loaded_in_one_send() -> None:
    """Two scripts, one pipeline."""
    server = ScriptedServer([NOSCRIPT, NOSCRIPT], [b"sha", b"sha"], [1, 2])
    assert [1, 2] == server.exchange(call(), call(of=TWO))
    assert 2 == len(server.asked[1])


def test_where_script_load_is_refused_the_text_is_sent() -> None:
    """Managed servers may refuse SCRIPT; the session remembers, so the next missing script is not tried."""
    refused = ReplyError("NOPERM", "no permissions to run the 'script|load' command")
    server = ScriptedServer([NOSCRIPT], [refused], [7], [NOSCRIPT], [8])
    assert [7] == server.perform([call()])
    text = ONE.form(True).text
    assert ("EVAL", text, "1", "{q}:key", "0", "x") == server.sent[2][0]
    assert [8] == server.exchange(call(of=TWO))
    assert "EVAL" == server.sent[-1][0][0]


def test_a_script_that_is_missing_after_it_was_loaded_is_sent_as_text() -> None:
    """A flush in between, or a proxy that loads on one node and runs on another."""
    server = ScriptedServer([NOSCRIPT], [b"sha"], [NOSCRIPT], [7])
    assert [7] == server.exchange(call())
    assert "EVAL" == server.sent[-1][0][0]


def test_a_script_that_stays_missing_is_an_error() -> None:
    """The third time there is nothing left to try."""
    server = ScriptedServer([NOSCRIPT], [b"sha"], [NOSCRIPT], [NOSCRIPT])
    [outcome] = server.exchange(call())
    assert isinstance(outcome, RedisReplyError)


@pytest.mark.parametrize(
    "code",
    ["LOADING", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "NOREPLICAS", "BUSY"],
)
def test_h20_what_passes_is_waited_out(code: str) -> None:
    """Only the refused call is sent again, also one that may never be replayed: it did not run."""
    server = ScriptedServer([1, ReplyError(code, "later")], [ReplyError(code, "later")], [2])
    assert [1, 2] == server.exchange(call(arg="a"), call(Replay.NEVER, arg="b"))
    assert [[evalsha(arg="b")], [evalsha(arg="b")]] == server.sent[1:]
    assert 2 == server.pauses


def test_h20_what_does_not_pass_in_time_is_reported_with_the_reason() -> None:
    """The pauses grow, so the whole time-out takes few of them."""
    server = ScriptedServer(*[[ReplyError("LOADING", "Redis is loading")]] * 20)
    [outcome] = server.perform([call()])
    assert isinstance(outcome, RedisUnavailableError)
    assert "LOADING Redis is loading" in str(outcome)
    assert 5 <= server.pauses <= 15


def test_h20_a_read_only_server_is_left_and_another_one_asked() -> None:
    """After a failover the address leads to the new primary; this connection never will."""
    server = ScriptedServer([ReplyError("READONLY", "replica")], None, GREETING, [7])
    assert [7] == server.exchange(call(Replay.NEVER))
    assert ["pause", "close", "open"] == server.asked[1:4]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ReplyError("OOM", "command not allowed"), RedisOutOfMemoryError),
        (ReplyError("NOPERM", "no permissions to run the 'evalsha' command"), RedisPermissionError),
        (ReplyError("NOAUTH", "Authentication required."), RedisAuthenticationError),
        (ReplyError("WRONGTYPE", "Operation against a key"), RedisReplyError),
        (ReplyError("ERR", "unknown command"), RedisReplyError),
    ],
)
def test_an_error_belongs_to_its_own_call(reply: ReplyError, error: type[Exception]) -> None:
    """The calls next to it get their replies, and nothing is sent again."""
    server = ScriptedServer([1, reply, 3])
    before, outcome, after = server.exchange(call(), call(), call())
    assert (1, 3) == (before, after)
    assert error is type(outcome)
    assert "test/one" in str(outcome) or error is RedisAuthenticationError


def test_before_anything_was_sent_every_call_is_sent_on_a_new_connection() -> None:
    """A connection that the server closed while it was idle costs nothing."""
    server = ScriptedServer(Received([], "closed", sent=False), None, GREETING, [1, 2])
    assert [1, 2] == server.exchange(call(Replay.NEVER, arg="a"), call(Replay.BY_TOKEN, arg="b"))
    assert [evalsha(arg="a"), evalsha(arg="b")] == server.sent[1]
    assert server.state.last_disconnect is None


def test_after_sending_each_call_is_treated_by_its_replay() -> None:
    """SAFE goes again as it is, BY_TOKEN with its flag set, NEVER not at all."""
    server = ScriptedServer(Received([], "broken pipe"), None, GREETING, [1, 2])
    outcomes = server.exchange(
        call(Replay.NEVER, arg="a"),
        call(Replay.BY_TOKEN, arg="b"),
        call(Replay.SAFE, arg="c"),
    )
    assert isinstance(outcomes[0], ReplyLostError)
    assert [1, 2] == outcomes[1:]
    assert [evalsha(arg="b", replayed=True), evalsha(arg="c")] == server.sent[1]
    assert server.state.last_disconnect is not None


def greeting(run: bytes) -> Any:
    """Return the answer to a greeting by a server process with this id."""
    return [b"OK", b"# Server\r\nredis_version:7.0.15\r\nrun_id:" + run + b"\r\n"]


@pytest.mark.parametrize(("second", "is_another"), [(b"a1", False), (b"b2", True)])
def test_a_restart_is_told_from_a_broken_connection_by_the_id_of_the_process(
    second: bytes, is_another: bool
) -> None:
    """A failover to another server counts as one."""
    broken = Received([], "broken pipe")
    server = ScriptedServer(None, greeting(b"a1"), broken, None, greeting(second), [1], is_open=False)
    assert [1] == server.exchange(call())
    assert server.state.last_disconnect is not None
    assert is_another == ("redis:6379" in server.state.restarts)


@pytest.mark.parametrize("greeting", [GREETING, [b"OK", ReplyError("NOPERM", "no permissions")]])
def test_the_process_of_a_server_that_does_not_tell_its_id_is_unknown(greeting: Any) -> None:
    """Then each broken connection may be a restart."""
    server = ScriptedServer(None, greeting, [1], is_open=False)
    assert [1] == server.exchange(call())
    assert ({"redis:6379": ""}, {}) == (server.state.runs, server.state.restarts)


def test_replies_that_came_before_the_break_stand() -> None:
    """Only what is missing is sent again."""
    server = ScriptedServer(Received([1], "broken"), None, GREETING, [2])
    assert [1, 2] == server.exchange(call(Replay.NEVER), call(Replay.BY_TOKEN, arg="b"))
    assert [evalsha(arg="b", replayed=True)] == server.sent[1]


def test_a_call_that_was_replayed_keeps_its_flag() -> None:
    """The first reply was lost: that stays true when the second try meets a server that is loading."""
    server = ScriptedServer(
        Received([], "broken"), None, GREETING, [NOSCRIPT], [b"sha"], [ReplyError("LOADING", "")], [7]
    )
    assert [7] == server.exchange(call(Replay.BY_TOKEN))
    assert [evalsha(replayed=True)] == server.sent[-1]


def test_a_break_while_scripts_are_loaded_is_not_a_lost_reply() -> None:
    """The call itself was refused, so it has not run, and its replay flag stays down."""
    server = ScriptedServer([NOSCRIPT], Received([], "broken"), None, GREETING, [7])
    assert [7] == server.exchange(call(Replay.BY_TOKEN))
    assert [evalsha()] == server.sent[-1]


def test_a_server_that_cannot_be_reached_is_tried_until_the_time_out() -> None:
    """Nothing was sent, so nothing was done, and the error says so."""
    server = ScriptedServer(*["connection refused"] * 20, is_open=False)
    outcomes = server.perform([call(), call(Replay.NEVER)])
    assert [RedisUnavailableError] * 2 == [type(outcome) for outcome in outcomes]
    assert "connection refused" in str(outcomes[0])
    assert outcomes[0] is not outcomes[1]
    assert 5 <= server.pauses <= 15


def test_a_try_that_the_time_out_cuts_short_does_not_hide_the_cause_of_the_one_before() -> None:
    """Also when a timer goes off a little before its time."""

    class Slow(ScriptedServer):
        def _answer(self, step: Any) -> Any:
            if isinstance(step, Open):
                self.now = 1_001.0 if len(self.answers) == 2 else 1_004.9995
            return super()._answer(step)

    server = Slow("it is a replica", "no reply within 0.0002 s", is_open=False)
    [outcome] = server.exchange(call())
    assert "it is a replica" in str(outcome)


def test_what_was_sent_and_never_answered_may_have_taken_effect() -> None:
    """The server hangs: the time-out passes with the first send."""
    server = ScriptedServer(Received([], "no reply within 5.0 s"), seconds_a_send=5.0)
    [outcome] = server.exchange(call(Replay.SAFE))
    assert isinstance(outcome, ReplyLostError)


def test_a_server_that_breaks_every_connection_is_not_hammered() -> None:
    """The first reconnection is at once; then pauses grow."""
    server = ScriptedServer(*[Received([], "broken"), None, GREETING] * 20)
    [outcome] = server.perform([call()])
    assert isinstance(outcome, ReplyLostError)
    assert "pause" not in server.asked[: server.asked.index("open")]
    assert 5 <= server.pauses <= 15


def test_a_refused_login_is_not_tried_again() -> None:
    """Waiting would not make the password right."""
    server = ScriptedServer(ReplyError("WRONGPASS", "invalid username-password pair"), is_open=False)
    [outcome] = server.exchange(call())
    assert isinstance(outcome, RedisAuthenticationError)


def test_a_missing_password_is_an_authentication_error() -> None:
    """The greeting is the first to be refused; that is not taken for a refused CLIENT command."""
    noauth = ReplyError("NOAUTH", "Authentication required.")
    server = ScriptedServer(None, [noauth, noauth], is_open=False)
    [outcome] = server.exchange(call())
    assert isinstance(outcome, RedisAuthenticationError)
    assert [] == server.warnings


@pytest.mark.parametrize("version", ["6.0.16", "5.0.14", "4.0"])
def test_a_server_older_than_6_2_is_refused(version: str) -> None:
    """Before anything is sent to it, and the error names the version."""
    server = ScriptedServer(None, [b"OK", f"redis_version:{version}\r\n".encode()], is_open=False)
    [outcome] = server.exchange(call())
    assert isinstance(outcome, RedisVersionError)
    assert version == outcome.version


@pytest.mark.parametrize(
    ("info", "flags"),
    [
        (b"redis_version:6.2.14\r\n", False),
        (b"redis_version:7.0.0\r\n", True),
        (b"server_name:valkey\r\nvalkey_version:9.1.0\r\nredis_version:7.2.4\r\n", True),
        (b"redis_version:255.255.255\r\n", True),
        (b"redis_version:unstable\r\n", True),
        (b"dragonfly_version:df\r\n", True),
    ],
)
def test_the_version_decides_about_the_form_of_scripts(info: bytes, flags: bool) -> None:
    """Redis 6.2 knows no flags line; what cannot be read is taken for a Redis 7."""
    server = ScriptedServer(None, [b"OK", info], [1], is_open=False)
    assert [1] == server.exchange(call())
    assert [evalsha(flags=flags)] == server.sent[0]


def test_each_connection_learns_the_version_for_itself() -> None:
    """A failover may lead to an older server."""
    old: Any = [b"OK", b"redis_version:6.2.0\r\n"]
    server = ScriptedServer(Received([], "closed", sent=False), None, old, [1])
    assert [1] == server.exchange(call())
    assert [evalsha(flags=False)] == server.sent[-1]


def test_refused_client_and_info_commands_give_one_warning_and_no_more() -> None:
    """The connection works without a name, and the server is taken for a Redis 7."""
    refused = ReplyError("NOPERM", "no permissions")
    greeting: Any = [refused, refused]
    closed = Received([], "closed", sent=False)
    server = ScriptedServer(None, greeting, [1], closed, None, greeting, [2], is_open=False)
    assert [1] == server.perform([call()])
    assert [2] == server.exchange(call())
    assert [evalsha()] == server.sent[0]
    [warning] = server.warnings
    assert "CLIENT SETNAME" in warning.message
    assert "INFO" in warning.message


NO_LUA = ReplyError("ERR", "Error compiling script (new function): user_script:1: unexpected symbol near '#'")


def test_a_redis_6_2_that_does_not_tell_its_version_is_known_by_its_answer() -> None:
    """Behind a proxy that refuses INFO; the session remembers, so the next script goes in its plain form."""
    server = ScriptedServer([1, NOSCRIPT], [NO_LUA], [NOSCRIPT], [7], [NOSCRIPT], [b"sha"], [8])
    assert [1, 7] == server.perform([command("GET", "k"), call()])
    assert [("EVAL", ONE.form(False).text, "1", "{q}:key", "0", "x")] == server.sent[-1]
    assert [8] == server.exchange(call(of=TWO))
    assert [("SCRIPT", "LOAD", TWO.form(False).text)] == server.sent[-2]


def test_it_is_known_too_where_scripts_cannot_be_loaded() -> None:
    """The text of the script is refused, and sent again without its flags."""
    refused = ReplyError("ERR", "unknown command 'SCRIPT'")
    server = ScriptedServer([NOSCRIPT], [refused], [NO_LUA], [7])
    assert [7] == server.exchange(call(Replay.NEVER))
    assert [("EVAL", ONE.form(False).text, "1", "{q}:key", "0", "x")] == server.sent[-1]


def test_a_script_that_cannot_be_compiled_without_flags_either_is_an_error() -> None:
    """It is not sent for ever."""
    server = ScriptedServer([NO_LUA], [NO_LUA])
    [outcome] = server.exchange(call())
    assert isinstance(outcome, RedisReplyError)


def test_a_server_that_is_busy_during_the_greeting_is_waited_for() -> None:
    """BUSY is not a refusal of the INFO command."""
    busy = ReplyError("BUSY", "Redis is busy running a script")
    server = ScriptedServer(None, [busy, busy], None, GREETING, [1], is_open=False)
    assert [1] == server.exchange(call())
    assert [] == server.warnings


def test_a_connection_that_rested_long_is_pinged_first() -> None:
    """After 15 seconds a NAT may have forgotten it; the ping finds out before a call is risked."""
    server = ScriptedServer([b"PONG"], [1])
    server.now += 15
    assert [1] == server.exchange(call(Replay.NEVER))
    assert [[("PING",)], [evalsha()]] == server.asked


def test_a_ping_without_answer_leads_to_a_new_connection() -> None:
    """Nothing of the calls was sent, so even one that may never be replayed goes on."""
    server = ScriptedServer(Received([], "broken"), None, GREETING, [1])
    server.now += 15
    assert [1] == server.exchange(call(Replay.NEVER))


def test_a_connection_in_use_is_not_pinged() -> None:
    """Fourteen seconds are short."""
    server = ScriptedServer([1], [2])
    server.now += 14
    server.perform([call()])
    server.now += 14
    assert [2] == server.exchange(call())


def test_h20_a_long_time_out_is_waited_out_to_its_end() -> None:
    """The pauses stop growing; a power of two that no float can hold would end the wait with an error."""
    server = ScriptedServer(is_open=False)
    server.state.timeout = 3600.0
    server.answers = ["refused"] * 10_000
    [outcome] = server.perform([call()])
    assert isinstance(outcome, RedisUnavailableError)
    assert 4599.9 <= server.now, "the last pause may end a millisecond before the time-out"


def test_a_greeting_that_takes_all_the_time_leaves_the_calls_unsent() -> None:
    """A socket would take what is left for an error, or for no time-out at all; so nothing is sent."""
    server = ScriptedServer(None, GREETING, is_open=False, seconds_a_send=6.0)
    [outcome] = server.exchange(call(Replay.NEVER))
    assert isinstance(outcome, RedisUnavailableError)
    assert [] == server.sent


def test_a_connection_that_opens_at_the_last_moment_raises_no_python_error() -> None:
    """However late it is, a step gets more than zero seconds."""
    server = ScriptedServer(is_open=False)
    steps = exchange([call()], server.session, server.state)
    while not isinstance(next(steps), Open):
        pass
    server.now += server.state.timeout + 1
    greeting = steps.send(None)
    assert isinstance(greeting, Send)
    assert greeting.seconds > 0


def test_the_check_of_a_connection_that_rested_leaves_time_for_a_new_one() -> None:
    """A firewall forgets idle connections and answers nothing: the check must not use up the time-out."""
    server = ScriptedServer()
    server.now += 20.0
    check = next(exchange([call()], server.session, server.state))
    assert isinstance(check, Send)
    assert [("PING",)] == check.commands
    assert server.state.timeout / 2 >= check.seconds


def test_a_call_that_may_have_run_is_not_reported_as_refused() -> None:
    """Its reply is lost, whatever the server says of the login when it is to be sent again."""
    wrong = ReplyError("WRONGPASS", "invalid username-password pair")
    server = ScriptedServer(Received([], "reset"), wrong)
    [outcome] = server.exchange(call())
    assert isinstance(outcome, ReplyLostError)
    assert "WRONGPASS" in str(outcome)


def test_an_embedded_server_that_does_not_start_is_the_outcome_of_every_call() -> None:
    """And not an error of the whole batch, whose other results would be lost with it."""
    error = EmbeddedServerError("no server program")
    server = ScriptedServer(error, is_open=False)
    assert [error, error] == server.exchange(call(arg="a"), call(arg="b"))
