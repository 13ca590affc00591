"""JSON as it is written: fast where CPython has its accelerator, and the same without it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyasynq._payload import text

VALUES: list[Any] = [
    {},
    [],
    "text",
    1,
    -0.5,
    1e300,
    None,
    True,
    {"a": [1, "zwölf", {"b": None}], "\u2028": '"\\\n', "c": (1, 2)},
    {1: "a number as a name", None: 0, False: 1},
]


ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


@pytest.mark.parametrize("value", VALUES)
def test_json_is_what_the_standard_library_writes(value: Any) -> None:
    """Compact, and byte for byte the same."""
    assert ENCODER.encode(value) == text.to_bytes(value).decode()


@pytest.mark.parametrize("accelerator", [None, lambda settings: settings])
def test_without_the_accelerator_the_standard_library_writes_it_itself(
    monkeypatch: pytest.MonkeyPatch, accelerator: Any
) -> None:
    """Another interpreter has none, or has one that is told other things."""
    monkeypatch.setattr(json.encoder, "c_make_encoder", accelerator)
    assert ENCODER.encode == text._make_encode(ENCODER)
