"""Registry of the output formats (views) of all commands, each with its JSON Schema."""

from __future__ import annotations

from typing import Final

from pyasynq._face_records.api_keys import API_KEYS
from pyasynq._face_records.attention import FINDINGS
from pyasynq._face_records.fleet import ENTRIES, ENTRY_EVENTS, SERVERS
from pyasynq._face_records.lease_workers import LEASE_WORKERS
from pyasynq._face_records.operations import EXPLANATION, OPERATIONS, PREVIEW
from pyasynq._face_records.queues import GROUPS, HISTORY, LISTED_QUEUES
from pyasynq._face_records.reports import AUDIT, ERRORS, EVENTS, TYPES
from pyasynq._face_records.saved_views import SAVED_VIEWS
from pyasynq._face_records.service_reports import (
    DELIVERIES,
    DELIVERY,
    DOORS,
    HOSTED_COMMAND,
    HOSTED_COMMANDS,
)
from pyasynq._face_records.statistics import LATENCY, MARKS, SERIES
from pyasynq._face_records.tasks import TASKS
from pyasynq.cli.limits import LIMITS
from pyasynq.cli.stats import TOTALS_HISTORY
from pyasynq.cli.top import TOP_QUEUES, TOP_TYPES

VIEWS: Final = (
    LISTED_QUEUES, HISTORY, TASKS, SERVERS, ENTRIES, ENTRY_EVENTS, GROUPS, ERRORS, TYPES, EVENTS, AUDIT,
    LIMITS, OPERATIONS, PREVIEW, EXPLANATION, LATENCY, SERIES, MARKS, TOP_QUEUES, TOP_TYPES,
    TOTALS_HISTORY, SAVED_VIEWS, FINDINGS, API_KEYS, LEASE_WORKERS, DELIVERIES,
    DELIVERY, HOSTED_COMMANDS, HOSTED_COMMAND, DOORS,
)  # fmt: skip
"""All views, each with its JSON Schema."""
