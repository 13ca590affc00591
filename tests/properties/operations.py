"""The operations of the stateful model: rules of Hypothesis that are counted."""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis.stateful import rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

drawn: Counter[str] = Counter()
"""How often each operation was drawn, of all machines of this process."""


def operation(**arguments: SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Make a method an operation of a state machine, with arguments that Hypothesis draws."""
    make_rule: Any = rule

    def decorate(function: Callable[..., None]) -> Any:
        drawn[function.__name__] += 0

        @functools.wraps(function)
        def counted(self: Any, **drawn_arguments: Any) -> None:
            drawn[function.__name__] += 1
            function(self, **drawn_arguments)

        return make_rule(**arguments)(counted)

    return decorate
