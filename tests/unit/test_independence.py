"""Tests do not depend on the caller's signals, nor on how fast the machine is (D40)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

CALLER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""
SHOW = """
import signal, tests.conftest
print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGHUP).name,
      signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_tests_run_with_the_usual_signals_whatever_their_caller_ignores_or_blocks() -> None:
    """A shell starts what runs in the background with SIGINT ignored, nohup ignores SIGHUP. (D40)"""
    shown = subprocess.run(
        [sys.executable, "-c", CALLER, SHOW], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout

    assert "default_int_handler SIG_DFL set()\n" == shown


CLOCKS = {"time.time()", "time.monotonic()", "time.perf_counter()", "asyncio.get_running_loop().time()"}
PATIENT_SECONDS = 30


def is_clock(node: ast.expr) -> bool:
    """Return whether an expression is a reading of the real clock."""
    return isinstance(node, ast.Call) and ast.unparse(node) in CLOCKS


def is_span(node: ast.expr, spans: set[str]) -> tuple[bool, bool]:
    """Return whether an expression grows, and whether it shrinks, while real time passes."""
    if isinstance(node, ast.Name):
        return node.id in spans, False
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"abs", "int", "round"}:
        grows, shrinks = is_span(node.args[0], spans)
        return (grows or shrinks,) * 2 if ast.unparse(node.func) == "abs" else (grows, shrinks)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return is_clock(node.left), is_clock(node.right)
    return False, False


def seconds_allowed(node: ast.expr) -> float:
    """Return a bound in seconds: what a name promises is taken for patient."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    return PATIENT_SECONDS if "PATIENCE" in ast.unparse(node) else 0.0


def hasty_comparisons(test: ast.expr, spans: set[str]) -> bool:
    """Return whether an assertion fails when real time passes sooner than in 30 seconds."""
    for compare in (node for node in ast.walk(test) if isinstance(node, ast.Compare)):
        sides = [compare.left, *compare.comparators]
        for left, operator, right in zip(sides, compare.ops, sides[1:], strict=False):
            small, large = (left, right) if isinstance(operator, ast.Lt | ast.LtE) else (right, left)
            if not isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                continue
            if is_span(small, spans)[0] and seconds_allowed(large) < PATIENT_SECONDS:
                return True
            if is_span(large, spans)[1]:
                return True
    return False


def hasty_assertions(source: str) -> list[int]:
    """Return the lines of assertions that a busy machine breaks: they bound how much real time may pass."""
    found: list[int] = []
    if not any(clock.rpartition(".")[2] in source for clock in CLOCKS):
        return found
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        spans = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and is_span(node.value, set())[0]
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        found += [
            node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Assert) and hasty_comparisons(node.test, spans)
        ]
    return sorted(set(found))


def test_no_assertion_bounds_how_much_real_time_may_pass() -> None:
    """Another program may take the cores for seconds: show the cause of being quick, or allow `PATIENCE`.

    Defect D40.
    """
    tiers = ("unit", "contract", "properties", "end_to_end", "typing")
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for tier in tiers
        for path in (ROOT / "tests" / tier).rglob("*.py")
        for line in hasty_assertions(path.read_text(encoding="utf-8"))
    }

    assert set() == found


def test_hasty_assertions_are_found_in_each_form() -> None:
    """Elapsed time that is bounded above, and remaining time that is bounded below. (D40)"""
    source = """
def test() -> None:
    before = time.monotonic()
    assert time.monotonic() - before < 3
    assert 3.0 > time.monotonic() - before
    took = time.perf_counter() - before
    assert 1 < took < 2
    assert 0 < deadline - time.time()
    assert abs(moment - time.time()) < 5
    assert time.monotonic() - before < PATIENCE
    assert time.monotonic() - before >= 0.15
    assert deadline - time.time() < 2
    assert before + 50 <= score <= time.time() + 51
"""

    assert [4, 5, 7, 8, 9] == hasty_assertions(source)


def exact_lifetimes(source: str) -> list[int]:
    """Return the lines of comparisons with exactly what is left of a key's time."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source) if ".ttl(" in source else ast.Module([], []))
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq)
        # A TTL of -1 or -2 does not run out.
        if re.search(r"\.p?ttl\(", text := ast.unparse(node)) and not re.search(r"set_to\(|-[12]\b", text)
    ]


def test_no_comparison_expects_exactly_what_is_left_of_a_time() -> None:
    """A TTL is a second less when the machine was busy for half a second: compare with `set_to(600)`.

    Defect D40.
    """
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in (ROOT / "tests" / "contract").rglob("*.py")
        for line in exact_lifetimes(path.read_text(encoding="utf-8"))
    }

    assert set() == found
    assert [2] == exact_lifetimes(
        "def f():\n    assert 600 == client.ttl(key)\n    assert set_to(6) == client.ttl(key)"
    )
