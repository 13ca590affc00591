"""The value of `--queues`."""

from __future__ import annotations

import click


def queue_weights(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, int] | None:
    """Read `critical=6,default=3`: names of queues with their weights, 1 where none is given.

    Raises:
        BadParameter: for an empty or repeated name, or a weight that is none.
    """
    if value is None:
        return None
    weights: dict[str, int] = {}
    for part in value.split(","):
        name, separator, weight = (text.strip() for text in part.partition("="))
        if not name:
            raise click.BadParameter(f"{value!r} contains an empty name; write critical=6,default=3")
        if name in weights:
            raise click.BadParameter(f"{value!r} names the queue {name!r} twice")
        if separator and not (weight.isascii() and weight.isdigit() and int(weight)):
            raise click.BadParameter(f"{part.strip()!r}: a weight is a whole number of at least 1")
        weights[name] = int(weight) if separator else 1
    return weights
