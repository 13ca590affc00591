"""Presentation of foreign data: JSON as a tree with exact numbers, text, hex, or the size of an image.

MessagePack, and data that may be protobuf, are trees too. Characters that move a cursor or hide become
symbols in every form. Nothing is executed or unpacked.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyasynq._human_text import bytes_text, counted
from pyasynq._visible_text import visible, visible_lines

from .decoding import DEEPEST, Note, Number, Pairs, guess_protobuf, is_text, read_json, read_msgpack
from .redaction import MASK, Redactor, Withheld

if TYPE_CHECKING:
    from collections.abc import Callable

ShowHook: TypeAlias = "Callable[[str, bytes], str | None]"
"""Type of a user's presentation hook: it returns text for bytes of a task type, or None for the default."""

SHOWN_BYTES: Final = 65_536
"""Number of bytes of a payload or result that are shown; a download has all of them."""
_MOST_NODES: Final = 2_000
_MOST_CHILDREN: Final = 200
_LONGEST_STRING: Final = 2_000
_OPEN_DEPTH: Final = 2
_HEX_WIDTH: Final = 16
_HEX_BYTES: Final = 4_096
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the JPEG segments that contain the image size."""
_PACKED: Final = ((b"\x1f\x8b", "packed with gzip"), (b"\x28\xb5\x2f\xfd", "packed with zstd"))
_PICKLES: Final = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_PICKLE_NOTE: Final = "a pickle: it is never loaded, since that would run code in it"
_GUESS_NOTE: Final = "may be protobuf, which names no fields: these are their numbers"


@dataclass(frozen=True, slots=True)
class Node:
    """Node of a JSON value's tree: a leaf with a text, or an object or list with children."""

    name: str | None
    kind: str
    """CSS class of a leaf: `s` for text, `n` for a number, `x` for anything else; empty for an inner node."""
    text: str
    """Text of a leaf, or the number of children of an inner node."""
    children: tuple[Node, ...] | None = None
    open: str = ""
    close: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Presentation:
    """A payload or result in displayed form."""

    size: str
    form: str
    """Form in which the data are shown: `tree`, `text` or `hex`; `none` if there are no data."""
    forms: tuple[str, ...]
    """Forms in which the data can be shown, the most readable one first."""
    tree: Node | None = None
    text: str = ""
    note: str = ""


def present(
    data: bytes | None,
    form: str = "",
    *,
    task_type: str = "",
    show: ShowHook | None = None,
    redactor: Redactor | None = None,
) -> Presentation:
    """Return data in the requested form, or in the most readable form if that is not possible.

    Args:
        data: a payload or result, without its secrets.
        form: `tree`, `text` or `hex`.
        task_type: type of the task, for `show`.
        show: the user's presentation hook, for data that are not withheld. If it raises, the default
            presentation is used, with a note.
        redactor: replaces the secrets in the text that `show` returns; by default, those with built-in names.
    """
    if data is None or data == b"":
        return Presentation("none" if data is None else "0 bytes", "none", ())
    if isinstance(data, Withheld):
        return Presentation(bytes_text(data.size), "text", ("text",), text=data.decode())
    own, failure = _show(task_type, data, show)
    if own is None:
        tree, text, note = _read(data)
    else:
        text = (redactor or Redactor()).data(own.encode("utf-8", "replace"), task_type).decode()
        tree, note = _build_tree(read_json(text) if len(text) <= SHOWN_BYTES else None), ""
    forms = [name for name, there in (("tree", tree is not None), ("text", text is not None)) if there]
    forms.append("hex")
    chosen = form if form in forms else forms[0]
    notes = [failure, note]
    if chosen == "hex":
        notes += [image_text(data), _cut_note(data, _HEX_BYTES)]
        shown = hex_dump(data[:_HEX_BYTES])
    elif chosen == "text":
        notes.append(_cut_note(text or "", SHOWN_BYTES))
        shown = visible_lines((text or "")[:SHOWN_BYTES])
    else:
        shown = ""
    return Presentation(
        size=bytes_text(len(data)),
        form=chosen,
        forms=tuple(forms),
        tree=_open(tree, len(data)) if tree is not None and chosen == "tree" else None,
        text=shown,
        note=", ".join(filter(None, notes)),
    )


def _show(task_type: str, data: bytes, show: ShowHook | None) -> tuple[str | None, str]:
    """Return the text of the user's presentation hook, and a note if the hook has failed."""
    if show is None:
        return None, ""
    try:
        text: object = show(task_type, data)
    except Exception as error:  # noqa: BLE001 - code of the user; the data are there without it
        return None, f"the function that shows this data has failed: {type(error).__name__}"
    return (text if isinstance(text, str) else None), ""


def _read(data: bytes) -> tuple[Node | None, str | None, str]:
    """Return data as a tree and as text, and a note on their format; tree or text is None if impossible."""
    try:
        text: str | None = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and "\x00" in text:
        text = None
    is_short = len(data) <= SHOWN_BYTES
    if text is not None and is_text(text):
        return (_build_tree(read_json(text)) if is_short else None), text, ""
    for start, note in _PACKED:
        if data.startswith(start):
            return None, text, note
    if data.startswith(_PICKLES) and data.endswith(b"."):
        return None, text, _PICKLE_NOTE
    if is_short and (tree := _build_tree(read_msgpack(data))) is not None:
        return tree, text, "MessagePack"
    if is_short and (tree := _build_tree(guess_protobuf(data))) is not None:
        return tree, text, _GUESS_NOTE
    return None, text, ""


def hex_dump(data: bytes) -> str:
    """Return bytes as lines of offset, hex and characters."""
    lines = []
    for at in range(0, len(data), _HEX_WIDTH):
        part = data[at : at + _HEX_WIDTH]
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{at:06x}  {part.hex(' '):<{_HEX_WIDTH * 3}} {letters}")
    return "\n".join(lines)


def image_text(data: bytes) -> str:
    """Return kind and size of an image, such as `a PNG image of 640 x 480`; empty for other data."""
    if data.startswith(_PNG) and len(data) >= 24:
        return _image("a PNG", *struct.unpack(">II", data[16:24]))
    if data.startswith(b"GIF8") and len(data) >= 10:
        return _image("a GIF", *struct.unpack("<HH", data[6:10]))
    if data.startswith(_JPEG):
        return _image("a JPEG", *_jpeg_size(data))
    return ""


def _image(kind: str, width: int = 0, height: int = 0) -> str:
    return f"{kind} image of {width:,} x {height:,}" if width and height else f"{kind} image"


def _jpeg_size(data: bytes) -> tuple[int, ...]:
    """Return width and height of a JPEG; an empty tuple if no segment at its beginning has them."""
    at = 2
    while at + 9 <= min(len(data), SHOWN_BYTES) and data[at] == 0xFF:
        if data[at + 1] in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return ()


def _cut_note(data: bytes | str, shown: int) -> str:
    return f"the first {bytes_text(shown)} shown" if len(data) > shown else ""


def _build_tree(value: Any) -> Node | None:
    return None if value is None else _Builder().build(None, value, 0)


def _open(node: Node, size: int) -> Node:
    """Return the root node of a tree, expanded and with the size of the data; return a leaf unchanged."""
    return replace(node, text=f"{node.text}, {bytes_text(size)}", is_open=True) if node.children else node


class _Builder:
    """Builder of a tree of nodes, which stops at the number of nodes that a page can show."""

    def __init__(self) -> None:
        self._left = _MOST_NODES

    def build(self, name: str | None, value: Any, depth: int) -> Node:
        self._left -= 1
        if isinstance(value, Pairs | list):
            return self._branch(name, value, depth)
        if isinstance(value, Number):
            return Node(name, "n", visible(value[:_LONGEST_STRING]))
        if isinstance(value, Note):
            return Node(name, "x", visible(value))
        if isinstance(value, str):
            return Node(name, "x", "redacted") if value == MASK else Node(name, "s", _quote(value))
        return Node(name, "x", json.dumps(value))

    def _branch(self, name: str | None, value: Pairs | list[Any], depth: int) -> Node:
        is_object = isinstance(value, Pairs)
        opening, closing = ("{", "}") if is_object else ("[", "]")
        count = counted(len(value), "key" if is_object else "item")
        if depth >= DEEPEST or self._left <= 0:
            return Node(name, "x", f"{opening} {count}, not shown {closing}")
        pairs = value if is_object else [(None, one) for one in value]
        children = [
            self.build(None if key is None else _name(key), one, depth + 1)
            for key, one in pairs[: min(_MOST_CHILDREN, self._left)]
        ]
        if len(children) < len(pairs):
            children.append(Node(None, "x", f"… {len(pairs) - len(children):,} more"))
        return Node(name, "", count, tuple(children), opening, closing, is_open=depth < _OPEN_DEPTH)


def _name(key: Any) -> str:
    """Return a key as it is shown; MessagePack allows values that are not text."""
    if isinstance(key, Number | Note):
        return visible(key[:_LONGEST_STRING])
    return _quote(key) if isinstance(key, str) else visible(json.dumps(key)[:_LONGEST_STRING])


def _quote(text: str) -> str:
    cut = f"{text[:_LONGEST_STRING]}…" if len(text) > _LONGEST_STRING else text
    return visible(json.dumps(cut, ensure_ascii=False))
