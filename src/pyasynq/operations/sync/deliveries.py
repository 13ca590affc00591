# Generated from src/pyasynq/operations/operator/deliveries.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about the requests of hosted task types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.operating.instance_reports import DELIVERY_REPORTS, read_reports

from .search import SearchOperator

if TYPE_CHECKING:
    from pyasynq.operations.deliveries import HostDeliveries


class DeliveryOperator(SearchOperator):
    """Lists the reports of task service instances about the hosts that they call."""

    def deliveries(self) -> list[HostDeliveries]:
        """Return the requests of the last hour by host and queue, for the queues that the user sees."""
        from pyasynq.operations.deliveries import decode_delivery_report, merge_deliveries  # noqa: PLC0415 - most calls need none

        now = self._inspector.now()
        found = self._inspector.run(read_reports(DELIVERY_REPORTS, now))
        reports = [decode_delivery_report(data) for _, data in found.values()]
        return merge_deliveries([one for one in reports if one is not None], now.seconds)
