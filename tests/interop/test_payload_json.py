"""Go reads the JSON of every kind of argument, and pyasynq reads what Go writes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyasynq._payload.text import from_bytes, to_bytes
from tests.interop.go_peer import build_program
from tests.properties.payload_types import KINDS, Typed, compile_type, types

if TYPE_CHECKING:
    from collections.abc import Iterator

READER = Path(__file__).parent / "json_reader"


class Rewrite(Protocol):
    """Lets Go read a document and write it again."""

    def __call__(self, document: bytes) -> bytes:
        """Return the document as Go writes it."""


@pytest.fixture(scope="module")
def rewrite(programs: Path) -> Iterator[Rewrite]:
    """A running Go program."""
    with subprocess.Popen(
        [build_program(READER, programs)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        asked, answered = reader.stdin, reader.stdout

        def ask(document: bytes) -> bytes:
            asked.write(document + b"\n")
            asked.flush()
            return answered.readline().rstrip(b"\n")

        yield ask
        asked.close()


def check_round_trip(typed: Typed, rewrite: Rewrite, data: st.DataObject) -> None:
    """Draw a value of a type, and read what Go writes of it; an error of Go would not be JSON."""
    value = data.draw(typed.values)
    converter = compile_type(typed.annotation)

    written = rewrite(to_bytes(converter.encode(value)))

    assert value == converter.decode(from_bytes(written))


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_value_of_any_declared_type_comes_back_equal_from_go(rewrite: Rewrite, data: st.DataObject) -> None:
    """Scalars and every nesting of containers."""
    check_round_trip(data.draw(types), rewrite, data)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=max(5, settings().max_examples // 10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_value_of_each_kind_comes_back_equal_from_go(
    rewrite: Rewrite, kind: str, data: st.DataObject
) -> None:
    """The test above draws some of the kinds; this one leaves none out."""
    check_round_trip(data.draw(KINDS[kind]), rewrite, data)


def test_what_is_not_json_is_told(rewrite: Rewrite) -> None:
    """Otherwise the test above could not fail."""
    assert rewrite(b"{").startswith(b"error: ")
