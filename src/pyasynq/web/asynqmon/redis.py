"""The route of asynqmon that describes Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answer import json_answer

if TYPE_CHECKING:
    from starlette.responses import Response

    from .answer import ApiRequest


async def answer_get_redis_info(ask: ApiRequest) -> Response:
    """Return Redis' INFO; for a cluster also its nodes, and the locations of the queues."""
    texts = await ask.operator.redis_texts()
    return json_answer(
        {
            "address": ask.operator.address,
            "info": _parse(texts.info),
            "raw_info": texts.info,
            "cluster": texts.is_cluster,
            "raw_cluster_nodes": texts.cluster_nodes,
            "queue_locations": await _find_locations(ask) if texts.is_cluster else None,
        }
    )


def _parse(text: str) -> dict[str, str]:
    pairs = (line.split(":") for line in text.split("\r\n"))
    return dict(pair for pair in pairs if len(pair) == 2)


async def _find_locations(ask: ApiRequest) -> list[dict[str, Any]] | None:
    """Return hash slot and nodes of each queue; None if there is no queue."""
    places = [
        {"queue": place.queue, "keyslot": place.slot, "nodes": [node.address for node in place.nodes]}
        for place in await ask.operator.queue_locations()
    ]
    return places or None
