"""How payloads and results are shown: exactly, bounded, and without characters that act."""

from __future__ import annotations

import gzip
import pickle
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyasynq._human_text import bytes_text
from pyasynq.operations import MASK, Node, Withheld, present
from pyasynq.operations.presentation import image_text

if TYPE_CHECKING:
    from collections.abc import Iterator

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480)
GIF = b"GIF89a" + struct.pack("<HH", 32, 16)
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 300, 400) + b"\x00" * 9


TRAPPED: list[int] = []


class _Trap:
    """An object whose pickle runs code when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return TRAPPED.append, (1,)


def pack(value: Any) -> bytes:
    """Return a value as MessagePack, by a library."""
    return msgspec.msgpack.encode(value)


def leaves(node: Node | None) -> Iterator[str]:
    """Yield the texts of all values in a tree."""
    assert node is not None
    if node.children is None:
        yield node.text
    for child in node.children or ():
        yield from leaves(child)


def test_json_is_a_tree_with_numbers_as_they_are_written() -> None:
    """A float would round them."""
    shown = present(b'{"id":12345678901234567890123,"ratio":0.10000000000000000001,"huge":1e999,"ok":true}')
    assert ("tree", ("tree", "text", "hex")) == (shown.form, shown.forms)
    assert ["12345678901234567890123", "0.10000000000000000001", "1e999", "true"] == list(leaves(shown.tree))


def test_a_redacted_value_is_told_apart_from_a_text() -> None:
    """It has no quotes."""
    assert ["redacted", '"x"'] == list(leaves(present(f'{{"password":"{MASK}","user":"x"}}'.encode()).tree))


@pytest.mark.parametrize("data", [b'{"a":"\\u001b]52;c;x\\u0007"}', "\x1b]52;c;x\x07 \u202e \u200b".encode()])
def test_characters_that_act_are_symbols_in_every_form(data: bytes) -> None:
    """An escape sequence must not write the clipboard, nor a bidirectional control turn a text around."""
    for form in ("tree", "text", "hex"):
        shown = present(data, form)
        text = shown.text + "".join(leaves(shown.tree) if shown.tree else ())
        assert [] == [letter for letter in text if letter in "\x1b\x07\u202e\u200b"]


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (b"plain text", "text"),
        (b"[" * 100_000, "text"),
        (b'{"a":', "text"),
        (b"\xff\xfe\x00", "hex"),
        (b"a\x00b", "hex"),
        (b"", "none"),
        (None, "none"),
        (b'{"a":1}' + b" " * 70_000, "text"),
    ],
)
def test_all_data_have_a_form(data: bytes | None, form: str) -> None:
    """The most readable one that is possible; a tree is built of 64 KB at most."""
    assert form == present(data).form


def test_large_data_are_cut_and_the_rest_is_told() -> None:
    """64 KB of text, 4 KB in hex."""
    text = present(b"x" * 3_200_000)
    assert (65_536, "3.2 MB", "the first 66 kB shown") == (len(text.text), text.size, text.note)
    binary = present(b"\xff" * 3_200_000)
    assert (256, "the first 4.1 kB shown") == (len(binary.text.splitlines()), binary.note)


def test_withheld_data_tell_their_size_and_nothing_else() -> None:
    """The user's own presentation does not see them either."""
    shown = present(Withheld(b"abc"), show=lambda task_type, data: "seen")
    assert ("3 bytes", "[withheld: 3 bytes]", ("text",)) == (shown.size, shown.text, shown.forms)


def test_an_image_tells_its_size() -> None:
    """Broken ones tell their kind."""
    assert "a PNG image of 640 x 480" == image_text(PNG)
    assert "a GIF image of 32 x 16" == image_text(GIF)
    assert "a JPEG image of 400 x 300" == image_text(JPEG)
    assert "a JPEG image" == image_text(JPEG[:12])
    assert "" == image_text(b"text")
    assert "a PNG image of 640 x 480" == present(PNG).note


def test_the_users_own_presentation_comes_first() -> None:
    """It is given type and bytes; None leaves the data to us, and hex is there as well."""
    shown = present(b"\xff\x01", task_type="t", show=lambda task_type, data: f"{task_type} {data[1]}\x1b")
    assert ("text", "t 1␛", ("text", "hex")) == (shown.form, shown.text, shown.forms)
    assert "hex" == present(b"\xff", show=lambda task_type, data: None).form
    assert "hex" == present(b"\xff", "hex", show=lambda task_type, data: "x").form


def test_a_presentation_that_fails_is_told_and_done_without() -> None:
    """The page is there, with the name of the error and nothing of the data."""

    def fail(task_type: str, data: bytes) -> str:
        raise ValueError(data)

    shown = present(b"secret", show=fail)
    assert ("secret", "the function that shows this data has failed: ValueError") == (shown.text, shown.note)


def test_what_the_users_own_presentation_reveals_is_redacted() -> None:
    """It may unpack what was not readable before; JSON is a tree then."""
    shown = present(b"\xff", show=lambda task_type, data: '{"password":"hunter2","user":"x"}')
    assert ("tree", ["redacted", '"x"']) == (shown.form, list(leaves(shown.tree)))
    assert "hunter2" not in present(b"\xff", show=lambda task_type, data: "password=hunter2").text


def test_a_name_that_is_there_twice_hides_nothing() -> None:
    """A reader that keeps the last one would show another value than the handler may use."""
    assert ["1", "2"] == list(leaves(present(b'{"a":1,"a":2}').tree))


def test_messagepack_is_a_tree() -> None:
    """All kinds of values; numbers are whole."""
    big = 2**64 - 1
    values = [None, True, -1, -(2**63), big, 1.5, "text", "x" * 40, b"\x01\x02", {"a": [1]}, {7: 8}]
    shown = present(pack({"values": values}))
    assert ("tree", ("tree", "hex"), "MessagePack") == (shown.form, shown.forms, shown.note)
    texts = ["null", "true", "-1", str(-(2**63)), str(big), "1.5", '"text"', f'"{"x" * 40}"', "h'01 02'", "1"]
    assert [*texts, "8"] == list(leaves(shown.tree))


@pytest.mark.parametrize(
    "data",
    [
        b"\x81\xa1a",  # cut off
        b"\xdd\xff\xff\xff\xff",  # promises four thousand million elements
        b"\x91" * 5_000 + b"\x01",  # nested too deeply
        pack([1]) + b"\x01",  # more behind it
        b"\x91\xc1",  # a byte that is never used
        b"\x91\xa2\xff\xfe",  # a text that is not UTF-8
    ],
)
def test_what_only_begins_as_messagepack_is_hex(data: bytes) -> None:
    """It is read whole or not at all."""
    assert "hex" == present(data).form


def test_what_may_be_protobuf_is_a_tree_of_field_numbers() -> None:
    """It is said that this is a guess; a text that has control characters can still be read as text."""
    inner = b"\x0a\x04mira"
    data = (
        b"\x08\x96\x01\x12" + bytes([len(inner)]) + inner + b"\x1a\x02\xff\xfe\x21" + struct.pack("<d", 1.5)
    )
    shown = present(data)
    assert ("tree", ("tree", "hex")) == (shown.form, shown.forms)
    assert shown.note.startswith("may be protobuf")
    assert ["150", '"mira"', "h'ff fe'", "0x3ff8000000000000 (1.5 as a float)"] == list(leaves(shown.tree))
    assert ("tree", "text", "hex") == present(inner).forms


def test_a_pickle_is_told_and_never_loaded() -> None:
    """Loading it would run code."""
    shown = present(pickle.dumps(_Trap()))
    assert ("hex", True) == (shown.form, shown.note.startswith("a pickle: it is never loaded"))
    assert [] == TRAPPED


@pytest.mark.parametrize(
    ("data", "name"), [(gzip.compress(b"x" * 100, mtime=0), "gzip"), (b"\x28\xb5\x2f\xfd\0\xff", "zstd")]
)
def test_packed_data_are_not_unpacked(data: bytes, name: str) -> None:
    """A bomb would fill the memory; the note says what it is."""
    assert ("hex", f"packed with {name}") == (present(data).form, present(data).note)


@given(st.binary(max_size=200), st.sampled_from(["", "tree", "text", "hex", "odd"]))
def test_no_data_break_the_presentation(data: bytes, form: str) -> None:
    """Every payload gets a form: tree, text, hex or none."""
    shown = present(data, form)
    assert shown.form in {"tree", "text", "hex", "none"}
    assert image_text(data) == "" or data[:1] in b"\x89\xffG"


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (3_200_000, "3.2 MB"),
        (5 * 10**12, "5.0 TB"),
        (10**16, "10,000 TB"),
    ],
)
def test_bytes_have_a_unit(count: int, expected: str) -> None:
    """Two digits are enough."""
    assert expected == bytes_text(count)
