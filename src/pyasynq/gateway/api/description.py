"""Description of a route for the OpenAPI document: parameters, bodies and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyasynq.gateway.leases.bodies import LONGEST_WAIT
from pyasynq.web.api.idempotency import KEY_HEADER
from pyasynq.web.api.parameters import DRY_RUN, REASON, Parameter, Type

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

WAIT: Final = Parameter(
    "wait", "Seconds to wait for the end of the task.", Type.SECONDS, 0.0, 0, LONGEST_WAIT
)

__all__ = ["DRY_RUN", "KEY_HEADER", "REASON", "WAIT", "RouteDescription"]


@dataclass(frozen=True, slots=True)
class RouteDescription:
    """Parameters, bodies and answers of a route.

    Attributes:
        about: summary, an imperative sentence.
        answers: form of the response body, by status: a struct, the name of an OpenAPI component, a tuple of
            such alternatives, or None for no body.
        bodies: structs of the request body, which has the form of one of them.
        parameters: query parameters.
        headers: names of the request headers that it reads.
        sent: names of the headers of each successful response.
        streams: whether the answer is a stream of server-sent events.
        lines: struct of each line, if the route also takes and answers lines of JSON (NDJSON).
    """

    about: str
    answers: Mapping[int, Any]
    bodies: tuple[type[msgspec.Struct], ...] = ()
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    lines: type[msgspec.Struct] | None = None
    streams: bool = False
