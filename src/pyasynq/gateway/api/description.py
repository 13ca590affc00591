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
        answers: shape of the body by status: a struct, the name of a component, several of them, or None.
        bodies: shapes of the request's body, one of which it has.
        parameters: parameters of the query.
        headers: names of the request headers that it reads.
        sent: names of the headers of each success.
        streams: whether the answer is a stream of server-sent events.
        lines: shape of each line, if the route also takes and answers lines of JSON.
    """

    about: str
    answers: Mapping[int, Any]
    bodies: tuple[type[msgspec.Struct], ...] = ()
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    lines: type[msgspec.Struct] | None = None
    streams: bool = False
