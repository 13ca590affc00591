"""Fixtures: how contract tests perform plans, and where they look at what the plans left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pytest
import redis
from redis.exceptions import NoScriptError, OutOfMemoryError, ResponseError

from pyasynq._broker.plan import Call, Plan, ScriptCall
from pyasynq.errors import RedisError, RedisOutOfMemoryError, RedisReplyError
from tests.invariants import check_invariants

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Perform(Protocol):
    """Performs a plan and returns what it returns."""

    def __call__(self, plan: Plan[T]) -> T: ...


class BlockingPerformer:
    """The simplest driver there can be: one call after another over one connection.

    With `replay`, each call is sent twice, as after a lost reply, and only the second reply is seen.
    """

    def __init__(self, client: redis.Redis, *, flags: bool = True, replay: bool = False) -> None:
        self._client = client
        self._flags = flags
        self._replay = replay

    def __call__(self, plan: Plan[T]) -> T:
        try:
            call = next(plan)
            while True:
                try:
                    reply = self._send(call)
                except RedisError as error:
                    call = plan.throw(error)
                else:
                    call = plan.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _send(self, call: Call) -> Any:
        reply = self._send_once(call)
        return self._send_once(replayed(call)) if self._replay else reply

    def _send_once(self, call: Call) -> Any:
        try:
            if not isinstance(call, ScriptCall):
                # A connection's reply, not what redis-py makes of it.
                return self._client.execute_command(*call.command, NEVER_DECODE=True)
            text, sha = call.script.form(self._flags)
            arguments = (len(call.keys), *call.keys, *call.args)
            try:
                return self._client.execute_command("EVALSHA", sha, *arguments)
            except NoScriptError:
                return self._client.execute_command("EVAL", text, *arguments)
        except OutOfMemoryError as error:
            raise RedisOutOfMemoryError(str(error)) from error
        except ResponseError as error:
            raise RedisReplyError(str(error)) from error
