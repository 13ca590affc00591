"""Encoding and decoding of JSON: compact, in UTF-8, without infinity and NaN."""

from __future__ import annotations

import json
import json.encoder
import math
from typing import TYPE_CHECKING, Any

from pyasynq._payload.converter import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from pyasynq._payload.converter import Json


def _refuse_constant(_constant: str) -> NoReturn:
    raise Mismatch("it contains NaN or Infinity, which JSON does not allow")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise Mismatch("it contains a number beyond the range of float")
    return number


def _make_encode(encoder: json.JSONEncoder) -> Callable[[Any], str]:
    """Return a function like `encoder.encode` that sets up CPython's C accelerator once, not for each value.

    The accelerator is not a documented part of `json`. If the interpreter lacks it, or expects other
    arguments, the function is `encoder.encode` itself.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    names_and_values = encoder.key_separator, encoder.item_separator
    switches = encoder.sort_keys, encoder.skipkeys, encoder.allow_nan
    try:
        chunks = make(
            None, encoder.default, json.encoder.encode_basestring, None, *names_and_values, *switches
        )
    except TypeError:
        return encoder.encode
    return lambda value: "".join(chunks(value, 0))


_encode = _make_encode(
    json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
)
_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_raw_decode = _decoder.raw_decode


def to_bytes(value: Json) -> bytes:
    """Return the value as JSON.

    Raises:
        Mismatch: for infinity and NaN, too many digits, lone surrogates, too deep nesting, and a value that
            contains itself.
    """
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        raise Mismatch("text with a lone surrogate cannot be written as UTF-8") from None
    except RecursionError:
        raise Mismatch(_reason_of_depth(value)) from None
    except ValueError as error:
        raise Mismatch(_reason(error)) from None


def _reason(error: ValueError) -> str:
    if "4300" in str(error) or "digits" in str(error):
        return "a whole number has more digits than Python writes"
    return "JSON has no infinity and no NaN"


def _reason_of_depth(value: Json) -> str:
    try:
        json.dumps(value)
    except ValueError as error:
        if "Circular" in str(error):
            return "it contains itself"
    except RecursionError:
        pass
    return "nested too deeply for JSON"


def from_bytes(data: bytes) -> Json:
    """Decode JSON.

    Raises:
        Mismatch: for anything that is not exactly one JSON value in UTF-8.
    """
    try:
        text = data.decode()
        try:
            value, end = _raw_decode(text)
        except json.JSONDecodeError:
            return _decoder.decode(text)
        # Payloads rarely have white space around them; then the slower decoder is used.
        return value if end == len(text) else _decoder.decode(text)
    except UnicodeDecodeError:
        raise Mismatch("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Mismatch(f"it is not JSON: {error}") from None
    except RecursionError:
        raise Mismatch("it is nested too deeply") from None
    except ValueError:
        raise Mismatch("it contains a whole number with more digits than Python reads") from None
