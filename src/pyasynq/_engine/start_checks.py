"""What a server looks at before it takes its first task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.events import ServerWarning

if TYPE_CHECKING:
    from pyasynq._clock import Clock
    from pyasynq._engine.settings import EngineSettings
    from pyasynq._redis.facts import ServerFacts
    from pyasynq.events import Events


def check_eviction(facts: ServerFacts, events: Events) -> bool:
    """Warn about a Redis that evicts; return whether it does."""
    policy = facts.maxmemory_policy
    if not policy or policy == "noeviction":
        return False
    events.emit(
        ServerWarning(
            "eviction",
            f"Redis evicts keys when it is full (maxmemory-policy is {policy}), and tasks with them: "
            "set maxmemory-policy to noeviction",
        ),
    )
    return True


def check_clock(facts: ServerFacts, clock: Clock, settings: EngineSettings, events: Events) -> None:
    """Warn about a clock that is wrong."""
    skew = clock.now().timestamp - facts.redis_now.timestamp
    if abs(skew) > settings.max_clock_skew:
        direction = "ahead of" if skew > 0 else "behind"
        events.emit(
            ServerWarning(
                "clock-skew",
                f"the clock of this host is {abs(skew):.1f} s {direction} that of Redis: tasks that are "
                "enqueued here for a later time will be run at a wrong one; synchronise the clocks",
            ),
        )
