"""Whatever a converter takes comes back equal, and equal values are equal bytes."""

from __future__ import annotations

from datetime import datetime
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyasynq._payload.arguments import ArgumentsCodec
from pyasynq._payload.text import from_bytes, to_bytes
from pyasynq.errors import PayloadDecodingError
from tests.properties.payload_types import KINDS, SCALARS, Typed, compile_type, text, types, undeclared

if TYPE_CHECKING:
    import random


def check_round_trip(typed: Typed, data: st.DataObject) -> None:
    """Draw a value of a type, and have it written and read through bytes."""
    value = data.draw(typed.values)
    converter = compile_type(typed.annotation)
    back = converter.decode(from_bytes(to_bytes(converter.encode(value))))
    assert value == back
    assert type(value) is type(back)


@given(st.data())
def test_a_value_of_any_declared_type_comes_back_equal(data: st.DataObject) -> None:
    """Scalars, and every nesting of containers around them."""
    check_round_trip(data.draw(types), data)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=max(5, settings().max_examples // 10))
@given(data=st.data())
def test_a_value_of_each_kind_comes_back_equal(kind: str, data: st.DataObject) -> None:
    """The test above draws some of the kinds; this one leaves none out."""
    check_round_trip(data.draw(KINDS[kind]), data)


@given(undeclared)
def test_a_value_of_no_declared_type_comes_back_equal(value: object) -> None:
    """JSON's own kinds need no annotation."""
    converter = compile_type(Any)
    assert value == converter.decode(from_bytes(to_bytes(converter.encode(value))))


@given(st.sampled_from(SCALARS), st.data(), st.randoms(use_true_random=False))
def test_equal_mappings_and_sets_are_equal_bytes(
    typed: Typed, data: st.DataObject, rng: random.Random
) -> None:
    """Whatever the order in which they were filled: uniqueness hashes the bytes."""
    items = data.draw(st.lists(typed.values, max_size=6))
    pairs = data.draw(st.lists(st.tuples(text, typed.values), max_size=6, unique_by=lambda pair: pair[0]))
    shuffled, shuffled_pairs = rng.sample(items, len(items)), rng.sample(pairs, len(pairs))
    sets = compile_type(GenericAlias(frozenset, (typed.annotation,)))
    maps = compile_type(GenericAlias(dict, (str, typed.annotation)))
    assert to_bytes(maps.encode(dict(pairs))) == to_bytes(maps.encode(dict(shuffled_pairs)))
    if len({repr(item) for item in items}) == len(set(items)):  # not 1.0 next to 1.00
        assert to_bytes(sets.encode(frozenset(items))) == to_bytes(sets.encode(frozenset(shuffled)))


@given(st.binary(max_size=60))
def test_decoding_any_bytes_ends_in_a_value_or_a_payload_error(data: bytes) -> None:
    """Nothing else may escape: what is in Redis may be anybody's."""

    def handler(a: int, b: datetime | None = None) -> None: ...

    codec = ArgumentsCodec(handler, {"a": int, "b": datetime | None}, owner="task 'x'")
    for payload in (data, b'{"a":' + data + b"}", b'{"a":1,"b":"' + data + b'"}'):
        try:
            assert isinstance(codec.decode(payload), dict)
        except PayloadDecodingError as error:
            assert str(error).startswith("task 'x'")  # noqa: PT017
