"""Decoding of the task service's answers to lease requests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from .errors import ServiceError

if TYPE_CHECKING:
    from pyasynq.gateway.leases.bodies import LeasedTask

    from .service_connection import ServiceAnswer

_OK: Final = 200


def read_leased_tasks(answer: ServiceAnswer) -> tuple[list[LeasedTask], float]:
    """Decode the tasks in an answer; return them, and the clock skew.

    The skew is the number of seconds by which this machine's clock is ahead of the service's.

    Raises:
        ServiceError: the answer is not from the service, but from a proxy, for example.
    """
    import msgspec  # noqa: PLC0415 - of the extra `service`

    from pyasynq.gateway.leases.bodies import LeaseAnswer  # noqa: PLC0415 - as above

    if answer.status != _OK:
        return [], 0.0
    skew = time.time() - answer.at if answer.at is not None else 0.0
    try:
        tasks = msgspec.json.decode(answer.content, type=LeaseAnswer).tasks
    except msgspec.DecodeError:
        raise ServiceError(answer.status, "", "the answer is not one of the task service") from None
    # The service reports its clock in whole seconds, so a difference up to 1 s means nothing.
    return tasks, skew if abs(skew) > 1.0 else 0.0
