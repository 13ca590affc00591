"""Scenarios: a proxy before Redis cuts connections, loses replies, and is slow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, cast

from tests.chaos.scenario import NothingTwice, Scenario
from tests.chaos.slow_proxy import SlowProxy
from tests.fix_proxy import Cut, Proxy

if TYPE_CHECKING:
    from tests.chaos.stage import Stage


async def _cut(stage: Stage, cut: Cut, times: int) -> None:
    """Cut the next calls of scripts, and wait until it is done: orders that pile up let no call through."""
    proxy = cast("Proxy", stage.proxy)
    done = proxy.cuts + times
    proxy.cut(cut, containing=b"EVALSHA", times=times)
    while proxy.cuts < done and stage.is_busy:  # noqa: ASYNC110 - the proxy lives in threads
        await asyncio.sleep(0.01)


class ConnectionsCut(Scenario):
    """Connections break at random: before, in and after requests and replies, one or all, and for a while."""

    name: ClassVar = "connections cut"
    tasks: ClassVar = 80_000
    proxy: ClassVar = Proxy

    async def inject(self, stage: Stage) -> None:
        """Cut several times a second."""
        proxy, random = cast("Proxy", stage.proxy), stage.random
        while stage.is_busy:
            await stage.pause(0.05, 0.5)
            with stage.fault("connection cut"):
                kind = random.random()
                if kind < 0.7:
                    await _cut(stage, random.choice(list(Cut)), 1)
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
        while stage.is_busy:
            await stage.pause(0.05, 0.3)
            with stage.fault("reply lost"):
                await _cut(stage, Cut.BEFORE_REPLY, stage.random.randrange(1, 4))


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
