"""A fuzzer: values from a strategy, a function that takes them, and the errors it may raise.

Hypothesis draws the values. Atheris, where it is installed, looks for inputs that reach new lines: it hands
bytes to `from_bytes`, or through Hypothesis to the same strategy. Whatever is raised besides what is allowed
is a finding.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._redis.plan import Plan, Reply


class Fuzzer(NamedTuple):
    """One target.

    Attributes:
        name: as `python -m tests.fuzz.run NAME` takes it.
        values: what Hypothesis draws from.
        target: takes a value; it may check what comes out, too.
        allowed: the errors that are answers.
        from_bytes: makes a value of bytes, for a target whose input is bytes or text anyway.
    """

    name: str
    values: st.SearchStrategy[Any]
    target: Callable[[Any], object]
    allowed: tuple[type[Exception], ...]
    from_bytes: Callable[[bytes], Any] | None

    def try_one(self, value: Any) -> None:
        """Give the target one value; what it raises besides what is allowed goes through."""
        with contextlib.suppress(*self.allowed):
            self.target(value)


FUZZERS: Final[dict[str, Fuzzer]] = {}


def fuzzer(
    values: st.SearchStrategy[Any],
    *allowed: type[Exception],
    from_bytes: Callable[[bytes], Any] | None = None,
) -> Callable[[Callable[[Any], object]], Callable[[Any], object]]:
    """Register a target under the name of its function."""

    def register(target: Callable[[Any], object]) -> Callable[[Any], object]:
        name = target.__name__.replace("_", "-")
        FUZZERS[name] = Fuzzer(name, values, target, allowed, from_bytes)
        return target

    return register


def load() -> dict[str, Fuzzer]:
    """Import all fuzzers, and what they are about."""
    for module in ("foreign", "given", "live", "payloads", "queries", "stored"):
        importlib.import_module(f"tests.fuzz.{module}")
    return FUZZERS


def answer(plan: Plan[Any], replies: Sequence[Reply]) -> object:
    """Run a plan against a Redis that gives these replies; return what it returns, None if it wants more."""
    try:
        next(plan)
        for reply in replies:
            plan.send(reply)
    except StopIteration as stop:
        return stop.value
    return None


def as_text(data: bytes) -> str:
    """Return any bytes as text, invalid UTF-8 with lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


DEEP: Final = b"[" * 100_000
NUMBERS: Final = (
    b"0",
    b"-1",
    b"1e999",
    b"nan",
    b"inf",
    b"-inf",
    b"9" * 30,
    b"9" * 5_000,
    b"0x1",
    b" 1",
    b"1_0",
)
BYTES: Final = st.binary(max_size=300) | st.sampled_from([b"", b"\x00", b"\xff\xfe", DEEP, *NUMBERS])
"""What somebody may have written into Redis instead of what belongs there."""

TEXTS: Final = st.text(max_size=100) | st.sampled_from(
    ["", "\x00", "{", "}", "{}", "a}{b", "\n", "\ud800", ":"]
)
"""What somebody may hand us as a name."""

JSON_VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.sampled_from([10**400, -(10**30), 1e308, float("nan"), float("inf"), 2**63]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
