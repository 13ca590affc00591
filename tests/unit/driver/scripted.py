"""A driver without Redis: it performs the steps of an exchange on a server that is a list of answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.durability import exchange_durably
from pyasynq._redis.plan import Argument, Call, CommandCall, Replay, ScriptCall
from pyasynq._redis.script import Script, ScriptForm
from pyasynq._redis.session import Close, DriverState, Open, Pause, Received, RedisSession, Send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._redis.reply_errors import ReplyError
    from pyasynq.errors import PyasynqError
    from pyasynq.events import RedisWarning

Command: TypeAlias = "tuple[Argument, ...]"
Answer: TypeAlias = "Received | list[Any] | str | ReplyError | PyasynqError | None"

GREETING: Answer = [b"OK", b"# Server\r\nredis_version:7.0.15\r\n"]


def script(name: str = "test/one") -> Script:
    """Make a script whose text is its name."""
    body = f"-- {name}\n".encode()
    return Script(name, True, ScriptForm(b"#!lua flags=allow-oom\n", body), ScriptForm(body))


ONE = script()


def call(replay: Replay = Replay.SAFE, *, of: Script = ONE, arg: str = "x") -> ScriptCall:
    """Make a call of a script."""
    return ScriptCall(of, ("{q}:key",), ("0", arg), replay)


def evalsha(*, of: Script = ONE, arg: str = "x", replayed: bool = False, flags: bool = True) -> Command:
    """Return what goes over the wire for `call`."""
    return ("EVALSHA", of.form(flags).sha, "1", "{q}:key", "1" if replayed else "0", arg)


def command(*words: str, replay: Replay = Replay.SAFE) -> CommandCall:
    """Make a call of a plain command."""
    return CommandCall(words, None, replay)


class ScriptedServer:
    """Answers steps from a list, and keeps what it was asked.

    An answer to `Send` is a list of replies or a `Received`; to `Open` None, a cause or an error reply. Time
    passes only in pauses, and by `seconds_a_send` with each `Send`.
    """

    def __init__(self, *answers: Answer, is_open: bool = True, seconds_a_send: float = 0.0) -> None:
        self.answers = list(answers)
        self.asked: list[str | list[Command]] = []
        self.now = 1000.0
        self.warnings: list[RedisWarning] = []
        self.session = RedisSession(is_open=is_open, last_used=self.now)
        self.state = DriverState(
            "redis:6379", "test", 5.0, SYSTEM_CLOCK, self.warnings.append, lambda: self.now
        )
        self._seconds_a_send = seconds_a_send

    def exchange(self, *calls: Call) -> list[Any]:
        """Perform an exchange; every answer must have been used at the end."""
        outcomes = self.perform(calls)
        assert [] == self.answers
        return outcomes

    def perform(self, calls: Sequence[Call]) -> list[Any]:
        steps = exchange_durably(calls, self.session, self.state)
        answer: Any = None
        try:
            while True:
                answer = self._answer(steps.send(answer))
        except StopIteration as stop:
            return list(stop.value)

    @property
    def pauses(self) -> int:
        return self.asked.count("pause")

    @property
    def sent(self) -> list[list[Command]]:
        """What was sent, greetings left out."""
        return [step for step in self.asked if isinstance(step, list) and step[0][0] != "CLIENT"]

    def _answer(self, step: Any) -> Any:
        if isinstance(step, Pause):
            self.asked.append("pause")
            self.now += step.seconds
            return None
        if isinstance(step, Close):
            self.asked.append("close")
            return None
        assert step.seconds > 0
        if isinstance(step, Open):
            self.asked.append("open")
            return self.answers.pop(0)
        assert isinstance(step, Send)
        self.asked.append([tuple(one) for one in step.commands])
        self.now += self._seconds_a_send
        answer = self.answers.pop(0)
        return Received(answer) if isinstance(answer, list) else answer
