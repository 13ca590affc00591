from __future__ import annotations

import pytest
import redis.exceptions as redis_errors

from pyasynq._redis.reply_errors import ReplyError, denied_commands, reply_error, translate
from pyasynq.errors import RedisOutOfMemoryError, RedisPermissionError


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (redis_errors.NoScriptError("No matching script."), "NOSCRIPT", "No matching script."),
        (redis_errors.BusyLoadingError("Redis is loading"), "LOADING", "Redis is loading"),
        (redis_errors.ResponseError("MISCONF Errors writing"), "MISCONF", "Errors writing"),
        (redis_errors.ResponseError("BUSY Redis is busy"), "BUSY", "Redis is busy"),
        (redis_errors.ResponseError("WRONGTYPE Operation"), "WRONGTYPE", "Operation"),
        (redis_errors.ResponseError("unknown command 'X'"), "ERR", "unknown command 'X'"),
        (redis_errors.ResponseError("NOREPLICAS"), "NOREPLICAS", ""),
    ],
)
def test_code_and_text_are_the_servers(error: Exception, code: str, message: str) -> None:
    """redis-py cuts some codes off the text and leaves others in it."""
    found = reply_error(error)
    assert (code, message) == (found.code, found.message)


@pytest.mark.parametrize("code", ["OOM", "MISCONF", "READONLY", "NOREPLICAS"])
def test_what_a_command_inside_a_script_answered_on_redis_6_2_is_found(code: str) -> None:
    """Redis 6.2 wraps it into an ERR of its own."""
    text = f"Error running script (call to f_0123): @user_script:7: @user_script: 7: -{code} not now"
    assert code == reply_error(redis_errors.ResponseError(text)).code


@pytest.mark.parametrize("between", ["', '", "`, `", "' '"])
def test_what_the_server_quotes_of_a_command_that_it_does_not_know_is_cut_off(between: str) -> None:
    """A proxy without HELLO quotes the password in its refusal; other commands carry payloads."""
    text = f"unknown command 'HELLO', with args beginning with: '3{between}AUTH{between}bob{between}geheim'"
    assert "geheim" not in str(reply_error(redis_errors.ResponseError(text)))
    assert "unknown command 'HELLO'" in str(reply_error(redis_errors.ResponseError(text)))


DENIED_BY_REDIS_7 = "ACL failure in script: User bob has no permissions to run the 'lpush' command script: 1."
DENIED_BY_REDIS_6 = (
    "Error running script (call to f_01): @user_script:2: @user_script: 2: "
    "The user executing the script can't run this command or subcommand"
)


@pytest.mark.parametrize("text", [DENIED_BY_REDIS_7, DENIED_BY_REDIS_6])
def test_a_right_that_is_missing_inside_a_script_is_a_permission_error(text: str) -> None:
    """Neither of them says NOPERM there; the error names the script and, where Redis does, the command."""
    error = translate(reply_error(redis_errors.ResponseError(text)), "script task/enqueue")
    assert isinstance(error, RedisPermissionError)
    assert "task/enqueue" in str(error)


def test_h25_a_full_redis_has_an_error_of_its_own() -> None:
    """So that a producer can tell it from all others."""
    error = redis_errors.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
    assert isinstance(translate(reply_error(error), "script task/enqueue"), RedisOutOfMemoryError)


@pytest.mark.parametrize(
    ("message", "commands"),
    [
        ("can't run this command or subcommand script: f52b, on @user_script:2.", ["hset"]),
        ("Error running script (call to f_1): @user_script:3: -NOPERM", ["ltrim", "llen"]),
        ("Error running script: @user_script:1: -@user_script: 2: can't run this command", ["hset"]),
        ("ACL failure in script: User bob has no permissions to run the 'hset' command", []),
        ("on @user_script:1.", []),
    ],
)
def test_the_commands_of_a_line_that_redis_refuses_are_found(message: str, commands: list[str]) -> None:
    """Redis 7.0 and 6.2 name the line of the script and not the command."""
    script = b"local k = KEYS[1]\nredis.call('HSET', k)\nredis.call('LTRIM', k, redis.call('LLEN', k))\n"
    assert commands == denied_commands(ReplyError("NOPERM", message), script)
    assert [] == denied_commands(ReplyError("ERR", message), script)


def test_a_subcommand_is_named_as_rules_name_it() -> None:
    """A rule for the container command would grant more than is missing."""
    error = ReplyError("NOPERM", "can't run this command or subcommand script: f52b, on @user_script:1.")
    assert ["memory|usage"] == denied_commands(error, b"redis.call('MEMORY', 'USAGE', 'k')")


def test_all_checked_commands_of_an_error_that_a_script_raises_again_are_named() -> None:
    """Redis 7.0 tells the line that raises them."""
    script = b"local failed = redis.pcall('LPUSH', 'k', 1)\nif failed.err then\n  error(failed, 0)\nend\n"
    error = ReplyError("NOPERM", "can't run this command or subcommand script: f52b, on @user_script:3.")
    assert ["lpush"] == denied_commands(error, script)
