"""Takes tasks as slots become free, starts them, and writes down what became of those that have ended."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from pyasynq._broker.dequeue import dequeue
from pyasynq._server.bell import Backoff
from pyasynq._server.service import Service
from pyasynq.errors import ReplyLostError
from pyasynq.options import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.dequeue import Dequeued
    from pyasynq._broker.plan import Plan
    from pyasynq._server.board import QueueBoard, QueueView
    from pyasynq._server.intake import Intake
    from pyasynq._server.engine_parts import Parts
    from pyasynq._server.queues import QueueOrder
    from pyasynq._server.runner import Runner
    from pyasynq._server.suspects import SuspectWatch
