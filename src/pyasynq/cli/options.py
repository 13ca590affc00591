"""Types of command-line options."""

from __future__ import annotations

from typing import Any

import click


class QueueWeights(click.ParamType):
    """`critical=6,default=3`: names of queues with their weights, 1 where none is given."""

    name = "queues"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int]:
        """Return weights by queue name."""
        if isinstance(value, dict):
            return value
        weights: dict[str, int] = {}
        for part in str(value).split(","):
            name, separator, weight = part.strip().partition("=")
            name, weight = name.strip(), weight.strip() if separator else "1"
            if not name:
                self.fail(
                    f"{value!r} contains an empty name; write it as in critical=6,default=3", param, ctx
                )
            if name in weights:
                self.fail(f"{value!r} names the queue {name!r} twice", param, ctx)
            if not weight.isascii() or not weight.isdigit() or int(weight) < 1:
                self.fail(f"{part.strip()!r}: a weight is a whole number of at least 1", param, ctx)
            weights[name] = int(weight)
        return weights
