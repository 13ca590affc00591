"""Proxy for asynqmon's charts: nine Prometheus queries, whose answers are passed on unchanged."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from starlette.responses import Response

from .answer import ApiError
from .go_texts import encode_json, quote_for_go

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answer import ApiRequest

_FILTER: Final = "QUEUE_FILTER"
_QUERIES: Final[Mapping[str, str]] = {
    "queue_size": f"asynq_queue_size{{{_FILTER}}}",
    "queue_latency_seconds": f"asynq_queue_latency_seconds{{{_FILTER}}}",
    "queue_memory_usage_approx_bytes": f"asynq_queue_memory_usage_approx_bytes{{{_FILTER}}}",
    "tasks_processed_per_second": f"rate(asynq_tasks_processed_total{{{_FILTER}}}[5m])",
    "tasks_failed_per_second": f"rate(asynq_tasks_failed_total{{{_FILTER}}}[5m])",
    "error_rate": (
        f"rate(asynq_tasks_failed_total{{{_FILTER}}}[5m]) "
        f"/ rate(asynq_tasks_processed_total{{{_FILTER}}}[5m])"
    ),
    "pending_tasks_by_queue": f'asynq_tasks_enqueued_total{{state="pending",{_FILTER}}}',
    "retry_tasks_by_queue": f'asynq_tasks_enqueued_total{{state="retry",{_FILTER}}}',
    "archived_tasks_by_queue": f'asynq_tasks_enqueued_total{{state="archived",{_FILTER}}}',
}
_HOUR: Final = 3_600
_DAY: Final = 24 * _HOUR
_STEPS: Final = ((6 * _HOUR, 10), (_DAY, 60), (8 * _DAY, 180), (30 * _DAY, 600))
"""Pairs of seconds: the longest time span of a chart, and its `step` (resolution) in the Prometheus query."""
_MOST_POINTS: Final = 3_000
_PATIENCE: Final = 10.0
_LARGEST_REPLY: Final = 50_000_000
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


async def answer_get_metrics(ask: ApiRequest) -> Response:
    """Return the answers of Prometheus to the queries of all charts, by the name of the chart."""
    duration = _read_number(ask, "duration", "duration", _HOUR)
    end = _read_number(ask, "endtime", "end_time", int(time.time()))
    names = [name for name in ask.request.query_params.get("queues", "").split(",") if name]
    if not ask.settings.prometheus:
        raise ApiError(500, "there is no Prometheus; give its address with --prometheus-addr")
    given = {"start": end - duration, "end": end, "step": _step(duration)}
    async with asyncio.TaskGroup() as group:
        asked = {
            chart: group.create_task(
                _fetch(ask.settings.prometheus, {"query": _apply_filter(query, names), **given})
            )
            for chart, query in _QUERIES.items()
        }
    answers = {chart: task.result() for chart, task in asked.items()}
    for chart, answer in answers.items():
        if isinstance(answer, Exception):
            raise ApiError(500, f"failed to fetch {quote_for_go(_QUERIES[chart])}: {answer}")
    return Response(encode_json(answers).rstrip(b"\n"), media_type="text/plain")


async def _fetch(address: str, parameters: dict[str, Any]) -> Any:
    """Return the JSON answer of Prometheus, or (without raising it) the exception of the request."""
    url = f"{address.rstrip('/')}/api/v1/query_range?{urlencode(parameters)}"
    try:
        return json.loads(await asyncio.to_thread(_read, url))
    except (OSError, ValueError) as error:
        return error


def _read(url: str) -> bytes:
    request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - its scheme was checked
    try:
        with urlopen(request, timeout=_PATIENCE) as reply:  # noqa: S310 - as above
            data: bytes = reply.read(_LARGEST_REPLY)
    except HTTPError as error:
        with error:
            return error.read(_LARGEST_REPLY)
    return data


def _apply_filter(query: str, names: list[str]) -> str:
    """Return a PromQL query limited to these queues; without names, return it for all queues."""
    if not names:
        return query.replace(_FILTER, "")
    pattern = "|".join(re.sub(r"([.+*?()|\[\]{}^$\\])", r"\\\1", name) for name in names)
    text = pattern.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return query.replace(_FILTER, f'queue=~"{text}"')


def _read_number(ask: ApiRequest, name: str, spoken: str, default: int) -> int:
    text = ask.request.query_params.get(name, "")
    if not text:
        return default
    if not _WHOLE_NUMBER.fullmatch(text):
        message = f"invalid query parameter: invalid value provided for {spoken}: {quote_for_go(text)}"
        raise ApiError(400, message)
    return int(text)


def _step(duration: int) -> int:
    for longest, step in _STEPS:
        if duration <= longest:
            return step
    return duration // _MOST_POINTS
