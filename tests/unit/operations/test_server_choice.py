"""The choice of servers for a request to all of a version."""

from __future__ import annotations

import pytest

from pyasynq.errors import InvalidOptionError, ServerNotFoundError
from pyasynq.info import ServerInfo
from pyasynq.operations.server_choice import check_server_number, choose_servers, needs_server_number


def _server(server_id: str, version: str = "", engine_version: str = "") -> ServerInfo:
    return ServerInfo(
        server_id,
        "host",
        1,
        "active",
        10,
        {"default": 1},
        strict_priority=False,
        started=None,
        active_workers=(),
        version=version,
        engine_version=engine_version,
    )


SERVERS = (_server("b", "2", "0.1"), _server("a", "2", "0.2"), _server("c", "1", "0.1"), _server("go"))


@pytest.mark.parametrize(
    ("chosen", "ids", "version", "engine_version"),
    [
        ("ab", None, "2", ""),
        ("bc", None, "", "0.1"),
        ("b", None, "2", "0.1"),
        ("ac", ["c", "a"], "", ""),
        ("a", ["a"], "2", ""),
    ],
)
def test_servers_are_chosen_by_version_or_id(
    chosen: str, ids: list[str] | None, version: str, engine_version: str
) -> None:
    """Both versions have to be right where both are given; a server in Go has neither."""
    found = choose_servers(SERVERS, ids, version=version, engine_version=engine_version)
    assert list(chosen) == [one.id for one in found]


@pytest.mark.parametrize(
    ("ids", "version", "named"), [(None, "3", "3"), (["a", "x"], "", "x"), (["c"], "2", "c")]
)
def test_servers_that_do_not_live_are_an_error(ids: list[str] | None, version: str, named: str) -> None:
    """The error names the version, or the first id that nothing has."""
    with pytest.raises(ServerNotFoundError, match=f"'{named}'"):
        choose_servers(SERVERS, ids, version=version)


def test_all_servers_are_never_chosen_by_mistake() -> None:
    """Without ids or a version, and with a single text that would be taken letter by letter."""
    with pytest.raises(InvalidOptionError, match=r"^version="):
        choose_servers(SERVERS, [])
    with pytest.raises(InvalidOptionError, match=r"^server_ids="):
        choose_servers(SERVERS, "abc")


@pytest.mark.parametrize(
    ("total", "environment", "confirm", "is_enough"),
    [
        (10, "", None, True),
        (11, "", None, False),
        (11, "", 11, True),
        (2, "production", None, False),
        (2, "production", 2, True),
        (2, "", 3, False),
    ],
)
def test_the_number_of_servers_is_confirmed(
    total: int, environment: str, confirm: int | None, is_enough: bool
) -> None:
    """Above ten, and in production; a wrong number is refused always, as servers may have come meanwhile."""
    assert needs_server_number(total, environment) == (total > 10 or environment == "production")
    if is_enough:
        check_server_number(total, environment, confirm)
    else:
        with pytest.raises(InvalidOptionError, match=rf"^confirm=.*{total} live"):
            check_server_number(total, environment, confirm)
