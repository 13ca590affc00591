"""A kit on the real server of a test; at the end, the invariants of its data are checked."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyasynq import App, testing
from tests.cluster_client import client_of
from tests.invariants import check_invariants

if TYPE_CHECKING:
    from collections.abc import Iterator

NOWHERE = "redis://production.invalid:6379/0"
"""URL to which no correct test connects."""


def make_app(**settings: Any) -> App:
    """Return an app of a service that runs in production."""
    return App(NOWHERE, **settings)


@contextmanager
def sound_kit(handler: Any, **settings: Any) -> Iterator[testing.Kit]:
    """Use a kit, and check at the end that its database is sound."""
    with testing.use(handler, **settings) as kit:
        yield kit
        with client_of(kit.url) as client:
            client.delete("pyasynq:testing")
            check_invariants(client)
