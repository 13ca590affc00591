"""Reports on commands: their bounds, their order, and what is not a report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pyasynq._broker.operating.instance_reports import MAX_REPORT_BYTES
from pyasynq.operations import REPORTED_OUTPUT
from pyasynq.operations.commands import decode_command, encode_command, list_commands
from tests.shop_service import make_command

NOW = 1_800_000_000.0
START = datetime.fromtimestamp(NOW, UTC)


def test_a_command_is_read_as_it_was_written() -> None:
    """With the bytes of its output."""
    made = make_command("t", out=b"\xff", err=b"no", out_bytes=1, err_bytes=2, started=START, ended=START)
    running = make_command("t", state="running", started=START, ended=None, cpu=None, memory=None)

    assert made == decode_command(encode_command(made))
    assert running == decode_command(encode_command(running))


def test_a_report_of_a_command_is_bounded() -> None:
    """However long its texts and its output are; of the output the end counts."""
    long = "\N{SNOWMAN}" * 10_000
    names = ("task_id", "program", "host", "end", "reason")
    made = make_command("t", **dict.fromkeys(names, long), out=bytes(100_000) + b"!", err=bytes(100_000))

    data = encode_command(made)
    read = decode_command(data)

    assert len(data) <= MAX_REPORT_BYTES
    assert read is not None
    assert (REPORTED_OUTPUT, b"!") == (len(read.out), read.out[-1:])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"{}",
        encode_command(make_command("t")).replace(b'"done"', b'"<b>"'),
        encode_command(make_command("t")).replace(b'"attempt":1', b'"attempt":true'),
        encode_command(make_command("t")).replace(b'"out":"', b'"out":"!'),
        b"[" * 100_000,
    ],
)
def test_anything_else_is_not_a_command(data: bytes) -> None:
    """It comes from Redis, where anybody may write."""
    assert decode_command(data) is None


def test_running_commands_come_first() -> None:
    """Each kind by its start, the newest first; one that is not reported any more is lost."""
    reports = [
        (int(NOW), make_command("ended", started=START)),
        (int(NOW), make_command("old", state="running", started=START - timedelta(seconds=9))),
        (int(NOW), make_command("new", state="running", started=START - timedelta(seconds=5))),
        (int(NOW) - 200, make_command("lost", state="running", started=START - timedelta(seconds=300))),
    ]

    listed = list_commands(reports, NOW)

    assert ["new", "old", "ended", "lost"] == [one.queue for one in listed]
    assert "lost" == listed[-1].state
