"""The commands `pyasynq task`."""

from pyasynq.cli.enqueue import enqueue_command
from pyasynq.cli.task import look, transfer, verbs, whole_state
from pyasynq.cli.task.noun import task

__all__ = ["look", "task", "transfer", "verbs", "whole_state"]

task.add_command(enqueue_command)
