"""Scenarios: the Redis user of clients and workers loses its rights or its password, and gets them back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import redis.asyncio

from tests.chaos.bed import one_redis
from tests.chaos.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.chaos.bed import Bed, OneRedis
    from tests.chaos.stage import Stage

_USER: Final = "worker"
_PASSWORD: Final = "old-password"
_NEW_PASSWORD: Final = "new-password"
_RIGHTS: Final = ("~asynq:*", "&asynq:*", "+@all")


class _UserBed:
    """A single server that clients and workers use as a user of their own."""

    def __init__(self, bed: OneRedis) -> None:
        self._bed = bed
        self.processes = bed.processes
        self.client = bed.client
        self.kill_primary = bed.kill_primary
        self.admin_url = bed.url
        self.url = bed.url.replace("redis://", f"redis://{_USER}:{_PASSWORD}@")
        with bed.client() as client:
            client.execute_command("ACL", "SETUSER", _USER, "on", f">{_PASSWORD}", *_RIGHTS)


class RightsWithdrawn(Scenario):
    """The rights or the password of the user are changed for some seconds, as in a rotation gone wrong.

    With the password, all connections of the user are closed, as managed Redis services do. A reply that is
    lost with its connection may run a task again, so this scenario allows second runs.
    """

    name: ClassVar = "rights and password changed"
    tasks: ClassVar = 300_000

    @contextmanager
    def _user_bed(self, folder: Path) -> Iterator[Bed]:
        with one_redis(folder) as bed:
            yield _UserBed(bed)

    def bed(self, folder: Path) -> AbstractContextManager[Bed]:
        """Return a server with a user for clients and workers."""
        return self._user_bed(folder)

    async def inject(self, stage: Stage) -> None:
        """Withdraw the rights or change the password, and undo it after a while."""
        assert isinstance(stage.bed, _UserBed)
        admin: Any
        async with redis.asyncio.Redis.from_url(stage.bed.admin_url) as admin:
            while stage.is_busy:
                await stage.pause(0.5, 2)
                if stage.random.random() < 0.5:
                    with stage.fault("rights withdrawn"):
                        await _set_user(admin, "-@all", "+ping")
                        await stage.pause(0.2, 3)
                        await _set_user(admin, "+@all")
                else:
                    with stage.fault("password changed"):
                        await _set_user(admin, "resetpass", f">{_NEW_PASSWORD}")
                        await admin.execute_command("CLIENT", "KILL", "USER", _USER)
                        await stage.pause(0.2, 3)
                        await _set_user(admin, f">{_PASSWORD}")


async def _set_user(admin: Any, *rules: str) -> None:
    await admin.execute_command("ACL", "SETUSER", _USER, *rules)


SCENARIOS = (RightsWithdrawn,)
