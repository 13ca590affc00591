"""Scenarios: a proxy before Redis cuts connections, loses replies, and is slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from tests.chaos.scenario import NothingTwice, Scenario
from tests.chaos.slow_proxy import SlowProxy
from tests.fix_proxy import Cut, Proxy

if TYPE_CHECKING:
    from tests.chaos.stage import Stage


class ConnectionsCut(Scenario):
    """Connections break at random: before, in and after requests and replies, one or all, and for a while."""

    name: ClassVar = "connections cut"
    tasks: ClassVar = 80_000
    proxy: ClassVar = Proxy

    async def inject(self, stage: Stage) -> None:
        """Cut several times a second."""
        proxy, random = cast("Proxy", stage.proxy), stage.random
        while stage.is_busy:
            await stage.pause(0.02, 0.5)
            with stage.fault("connection cut"):
                kind = random.random()
                if kind < 0.7:
                    proxy.cut(random.choice(list(Cut)), containing=b"EVALSHA")
                elif kind < 0.9:
                    proxy.cut_all()
                else:
                    proxy.refuse()
                    proxy.cut_all()
                    await stage.pause(0.1, 1)
                    proxy.refuse(refusing=False)


class RepliesLost(Scenario):
    """Redis does what it was asked for, and the reply is lost."""

    name: ClassVar = "replies lost"
    tasks: ClassVar = 80_000
    proxy: ClassVar = Proxy

    async def inject(self, stage: Stage) -> None:
        """Lose several a second."""
        proxy = cast("Proxy", stage.proxy)
        while stage.is_busy:
            await stage.pause(0.0, 0.2)
            with stage.fault("reply lost"):
                proxy.cut(Cut.BEFORE_REPLY, containing=b"EVALSHA", times=stage.random.randrange(1, 4))


class Latency(NothingTwice):
    """Replies take two seconds."""

    name: ClassVar = "latency of 2 s"
    tasks: ClassVar = 20_000
    concurrency: ClassVar = 400
    proxy: ClassVar = SlowProxy

    async def inject(self, stage: Stage) -> None:
        """Be slow for some seconds, and again after a while."""
        proxy = cast("SlowProxy", stage.proxy)
        while stage.is_busy:
            with stage.fault(self.name):
                proxy.latency = 2.0
                await stage.pause(6, 12)
                proxy.latency = 0.0
            await stage.pause(0.2, 1)


SCENARIOS = (ConnectionsCut, RepliesLost, Latency)
