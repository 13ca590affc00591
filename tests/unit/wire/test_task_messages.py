"""Task messages: the bytes that Asynq peers share."""

from __future__ import annotations

import pytest

from pyasynq._wire.messages import (
    InvalidTextError,
    TaskMessage,
    UndecodableMessageError,
    copy_task_message,
    decode_task_message,
    encode_task_message,
    new_task_message,
)

# Field 999, a text: what a peer of a later version might write.
UNKNOWN_FIELD = bytes.fromhex("ba3e") + b"\x05later"


def test_a_message_of_a_go_client_is_written_byte_for_byte() -> None:
    """A task as Asynq's own command-line examples print it is encoded to the same bytes."""
    message = new_task_message(
        type="email:deliver",
        payload=b'{"UserID":42,"TemplateID":"some:template:id"}',
        id="42cf52dd-865c-45d9-b63c-7a5a4d1e64b0",
        queue="default",
        retry=25,
        timeout=1800,
    )
    expected = (
        b"\n\remail:deliver\x12-"
        b'{"UserID":42,"TemplateID":"some:template:id"}'
        b'\x1a$42cf52dd-865c-45d9-b63c-7a5a4d1e64b0"\x07default(\x19@\x88\x0e'
    )
    assert expected == encode_task_message(message)


def test_group_and_headers_are_written_byte_for_byte() -> None:
    """Headers come last, and an empty value is written, too."""
    message = new_task_message(
        type="t", id="i", queue="q", retry=25, timeout=1800, group_key="g", headers={"c": "", "a": "b"}
    )
    expected = "0a01741a0169220171281940880e7201677a060a01611201627a050a01631200"
    assert expected == encode_task_message(message).hex()


def test_equal_messages_with_headers_are_equal_bytes() -> None:
    """The order in which headers were set does not show, although protobuf maps have no order."""
    names = [f"header-{number}" for number in range(50)]
    forwards = new_task_message(type="t", headers=dict.fromkeys(names, "x"))
    backwards = new_task_message(type="t", headers=dict.fromkeys(reversed(names), "x"))
    assert encode_task_message(forwards) == encode_task_message(backwards)


def test_negative_numbers_take_ten_bytes() -> None:
    """Protobuf extends the sign of a negative number to 64 bits, also for 32-bit fields."""
    assert "28" + "ff" * 9 + "01" == encode_task_message(new_task_message(retry=-1)).hex()


@pytest.mark.parametrize("nothing", [None, b""])
def test_no_payload_and_an_empty_one_are_the_same_bytes(nothing: bytes | None) -> None:
    """The difference exists only in the uniqueness lock."""
    assert b"\n\x01t" == encode_task_message(new_task_message(type="t", payload=nothing, headers=None))


def test_fields_in_any_order_are_read() -> None:
    """A reader may not rely on the ascending order that Go writes."""
    assert new_task_message(type="t", queue="q", retry=3) == decode_task_message(b'(\x03"\x01q\n\x01t')


def test_unknown_fields_survive_a_rewrite() -> None:
    """A field that a later version wrote is still there after a copy was changed and encoded."""
    message = decode_task_message(b"\n\x01t" + UNKNOWN_FIELD)
    rewritten = copy_task_message(message)
    rewritten.retried = 1
    assert b"\n\x01t0\x01" + UNKNOWN_FIELD == encode_task_message(rewritten)


def test_a_copy_is_independent() -> None:
    """Changing the copy leaves the message alone, also inside its headers."""
    message = new_task_message(type="t", headers={"a": "b"})
    copy = copy_task_message(message)
    copy.headers["a"] = "changed"
    copy.retried = 7
    assert ("b", 0) == (message.headers["a"], message.retried)


def test_no_bytes_are_refused() -> None:
    """Protobuf would read no bytes as an empty message; here it means that the task is damaged."""
    with pytest.raises(
        UndecodableMessageError, match="cannot decode 0 bytes as TaskMessage: there is nothing"
    ):
        decode_task_message(b"")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\n\x05a", id="cut off"),
        pytest.param(b"\n\x01\xff", id="text that is not UTF-8"),
        pytest.param(b"\x00", id="field number zero"),
        pytest.param(b"not protobuf", id="something else"),
    ],
)
def test_damaged_bytes_are_refused_and_kept(data: bytes) -> None:
    """The error carries the bytes untouched, so that they can be put aside; its text does not show them."""
    with pytest.raises(UndecodableMessageError) as caught:
        decode_task_message(data)
    assert ("TaskMessage", data) == (caught.value.kind, caught.value.data)
    assert caught.value.reason
    assert data.decode("latin-1") not in str(caught.value)


def test_w22_a_lone_surrogate_names_the_field() -> None:
    """Text that UTF-8 cannot hold is refused when the message is made, not when it is to be written."""
    with pytest.raises(
        InvalidTextError, match=r"error_msg of TaskMessage .* character 4 is '\\udcff'"
    ) as caught:
        new_task_message(type="t", error_msg="boom\udcff")
    assert ("error_msg", "boom\udcff") == (caught.value.field, caught.value.text)


@pytest.mark.parametrize(
    ("headers", "field"), [({"a": "\ud800"}, "headers['a']"), ({"\ud800": "a"}, "a key of headers")]
)
def test_a_lone_surrogate_in_a_header_names_the_header(headers: dict[str, str], field: str) -> None:
    """With many headers, the error says which one is wrong."""
    with pytest.raises(InvalidTextError) as caught:
        new_task_message(type="t", headers=headers)
    assert field == caught.value.field


def test_w37_a_number_too_large_for_its_field_is_refused() -> None:
    """Go cuts such a number down to 32 bits without a word."""
    with pytest.raises(ValueError, match="2147483648"):
        new_task_message(retry=2**31)


def test_a_message_decodes_to_the_generated_class() -> None:
    """There is one object per message from Redis to the handler; nothing is copied into another."""
    assert TaskMessage is type(decode_task_message(b"\n\x01t"))
