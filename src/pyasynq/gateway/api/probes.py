"""Probes `/live` and `/ready`, which answer from memory and need no key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.web.api.problem import ProblemError

from .call import answer_json

if TYPE_CHECKING:
    from starlette.responses import Response

    from pyasynq.gateway.configurations import ConfigurationFollower


def answer_live() -> Response:
    """Answer that the event loop of this process runs."""
    return answer_json({"status": "live"})


def answer_ready(follower: ConfigurationFollower, *, is_ending: bool) -> Response:
    """Answer whether this instance can take requests: it reaches Redis, and is not shutting down.

    Raises:
        ProblemError: it cannot take requests.
    """
    if is_ending:
        raise ProblemError(503, "shutting_down", "This instance is closing.", headers={"Retry-After": "1"})
    if not follower.is_current:
        detail = "Redis has not answered for some seconds."
        raise ProblemError(503, "not_ready", detail, headers={"Retry-After": "2"})
    return answer_json({"status": "ready"})
