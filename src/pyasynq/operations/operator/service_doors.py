"""The operator's methods about protocol gateways (doors) of the task service, such as for Gearman."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyasynq._broker.operating.instance_reports import DOOR_REPORTS, read_reports

from .search import SearchOperator

if TYPE_CHECKING:
    from pyasynq.operations.service_doors import ServiceDoor


class ServiceDoorOperator(SearchOperator):
    """Lists the protocol gateways (doors) that the instances of the task service report."""

    async def service_doors(self) -> list[ServiceDoor]:
        """Return the gateways of the last 10 minutes, with the functions that the user sees."""
        from pyasynq.operations.service_doors import decode_door, list_doors  # noqa: PLC0415 - most calls need none

        now = self._inspector.now()
        found = await self._inspector.run(read_reports(DOOR_REPORTS, now))
        read = [(at, decode_door(data)) for at, data in found.values()]
        return [
            replace(
                one,
                functions={name: number for name, number in one.functions.items() if self._access.sees(name)},
            )
            for one in list_doors([(at, one) for at, one in read if one is not None], now.seconds)
        ]
