from __future__ import annotations

import pytest

from pyasynq._engine.executor.frames import MessageFrame, Unpacker, pack_frame

FRAMES = [
    MessageFrame("run", {"id": "a", "deadline_at": 1.5, "headers": {"k": "v"}}, b"\x00payload\xff"),
    MessageFrame("cancel", {}),
    MessageFrame("log", {"msg": "half \ud800 of a pair, and \N{SNOWMAN}"}),
]


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
def test_frames_come_out_as_they_went_in_for_any_split_into_pieces(size: int) -> None:
    """A stream knows no bounds of messages."""
    stream = b"".join(pack_frame(*frame) for frame in FRAMES)
    unpacker = Unpacker()

    heard = [
        frame
        for start in range(0, len(stream), size)
        for frame in unpacker.feed(stream[start : start + size])
    ]

    assert heard == FRAMES


def test_a_large_body_is_carried_as_it_is() -> None:
    """Payloads are bytes, and not text in JSON."""
    body = bytes(range(256)) * 40_000

    [frame] = Unpacker().feed(pack_frame("run", {}, body))

    assert body == frame.body


def test_bytes_that_are_not_a_frame_are_refused() -> None:
    """The stream cannot be trusted after that."""
    stream = (4).to_bytes(4, "big") + (0).to_bytes(4, "big") + b"rubb"

    with pytest.raises(ValueError, match="Expecting value"):
        list(Unpacker().feed(stream))
