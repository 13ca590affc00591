"""Asking whichever server runs a task to cancel it."""

from __future__ import annotations

from pyasynq._broker.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import CANCEL_CHANNEL


def publish_cancelation(task_id: str) -> Plan[int]:
    """Tell all servers to cancel the task with this id, in whatever queue; return how many were listening."""
    return int((yield CommandCall(("PUBLISH", CANCEL_CHANNEL, task_id), None, Replay.SAFE)))
