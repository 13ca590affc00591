"""JSON bodies of requests: reading up to a limit, decoding into a struct, and explaining errors."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from pyasynq._checks import parse_whole_number
from pyasynq.errors import nearest

from .nesting import is_deeper
from .problem import ProblemError, wrong_value

if TYPE_CHECKING:
    from starlette.requests import Request

BODY_SECONDS: Final = 30.0
"""Maximum seconds for a body to arrive, so that a slow client (slow loris) holds no request open."""
_JSON: Final = "application/json"
_DEEPEST: Final = 64
_PLACE: Final = re.compile(r" - at `(.+)`$")
_UNKNOWN: Final = re.compile(r"unknown field `(.{1,100})`")


async def read_content(request: Request, largest: int) -> bytes:
    """Return the body of a request, of at most `largest` bytes.

    Raises:
        ProblemError: the body is larger, arrived too slowly, or the client disconnected.
    """
    # Refuse a large body before it is read. Also count the bytes read, because the header may be wrong.
    _check_size(parse_whole_number(request.headers.get("content-length", "")) or 0, largest)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            content = bytearray()
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ProblemError(400, "body_incomplete", "The body is incomplete.", "Send all of it.")
                content += message.get("body", b"")
                _check_size(len(content), largest)
                if not message.get("more_body"):
                    return bytes(content)
    except TimeoutError:
        remedy = f"Send all of it within {BODY_SECONDS:g} seconds."
        headers = {"Connection": "close"}
        raise ProblemError(408, "body_too_slow", "The body is incomplete.", remedy, headers=headers) from None


def _check_size(size: int, largest: int) -> None:
    if size > largest:
        remedy = f"Send at most {largest:,} bytes."
        raise ProblemError(413, "body_too_large", "The body is too large.", remedy)


def decode_body(request: Request, content: bytes, kind: Any) -> Any:
    """Return the body of a request, decoded as a type; an empty body counts as an empty JSON object.

    Raises:
        ProblemError: the body is not JSON, is compressed, or is not of that type.
    """
    if content and request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise ProblemError(
            415,
            "unsupported_media_type",
            "The body must be JSON.",
            f"Send Content-Type: {_JSON}.",
            field="Content-Type",
            headers={"Accept-Post": _JSON},
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ProblemError(415, "unsupported_encoding", "The body is compressed.", "Send it uncompressed.")
    return decode_text(content or b"{}", kind)


def decode_text(content: bytes, kind: Any) -> Any:
    """Return JSON decoded as a type.

    Raises:
        ProblemError: the content is not JSON, is nested too deeply, or is not of that type.
    """
    try:
        content.decode()
        if is_deeper(content, _DEEPEST):
            remedy = f"Send at most {_DEEPEST} levels, or a payload as payload_text."
            raise ProblemError(400, "nested_too_deeply", "The body is nested too deeply.", remedy)
        return _get_decoder(kind).decode(content)
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        remedy = "Send one object in JSON, encoded in UTF-8."
        raise ProblemError(400, "malformed_json", "The body is not JSON.", remedy) from None


@cache
def _get_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the cached decoder of a type, because making a decoder takes longer than decoding a task."""
    return msgspec.json.Decoder(kind)


def _explain(text: str, kind: Any) -> ProblemError:
    """Return the problem for an invalid body, without messages of msgspec that could repeat a value."""
    found = _PLACE.search(text)
    place = found[1].removeprefix("$").lstrip(".") if found else ""
    what = text[: found.start()] if found else text
    unknown = _UNKNOWN.search(what)
    if unknown:
        near = nearest(unknown[1], _find_fields(kind, place))
        place = f"{place}.{unknown[1]}".lstrip(".")
        what = f"this field is unknown{near or '; the OpenAPI document lists them'}"
    elif what.startswith("Object missing required field"):
        place = f"{place}.{what.rpartition('field ')[2].strip('`')}".lstrip(".")
        what = "it is missing"
    elif not what.startswith("Expected"):
        what = "it cannot have this value; the OpenAPI document has the choices"
    end = "" if what.endswith("?") else "."
    return wrong_value(place or "body", what[:1].upper() + what[1:].replace("`", "") + end)


def _find_fields(kind: Any, place: str) -> list[str]:
    """Return the possible field names of the object at a path in the body, such as `options`."""
    structs = _find_structs(kind)
    for name in re.findall(r"[A-Za-z_]\w*", place):
        structs = [
            inner
            for struct in structs
            for field in msgspec.structs.fields(struct)
            if field.encode_name == name
            for inner in _find_structs(field.type)
        ]
    return [field.encode_name for struct in structs for field in msgspec.structs.fields(struct)]


def _find_structs(kind: Any) -> list[type[msgspec.Struct]]:
    """Return the msgspec structs in a type: the type itself, or the type of the items of a list."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [struct for one in get_args(kind) for struct in _find_structs(one)]
