from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.interop.asynqmon_program import SOURCE as ASYNQMON
from tests.interop.asynqmon_program import Asynqmon
from tests.interop.collector_program import SOURCE as COLLECTOR
from tests.interop.database import Database
from tests.interop.go_peer import SOURCE as PEER
from tests.interop.go_peer import GoMissingError, GoPeer, build_program, find_go
from tests.interop.go_side import GoSide

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_sessionstart() -> None:
    """Say at once what is missing."""
    try:
        find_go()
    except GoMissingError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the drawn sequences have reached."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, text in report.user_properties if report.when == "call" else ():
                terminalreporter.section(f"{name} of {report.nodeid}")
                terminalreporter.write_line(str(text))


@pytest.fixture(scope="session", autouse=True)
def names_travel() -> Iterator[None]:
    """Let the name of a queue go with each batch: a comparison cannot know when it would follow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyasynq._broker.queue_registry._GAP", 0.0)
        yield


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes which share the tests have in common."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def peer_program(programs: Path) -> Path:
    """The compiled peer."""
    return build_program(PEER, programs)


@pytest.fixture(scope="session")
def asynqmon(programs: Path) -> Path:
    """The compiled asynqmon."""
    return build_program(ASYNQMON, programs)


@pytest.fixture(scope="session")
def collector(programs: Path) -> Path:
    """The compiled exporter with Asynq's collector."""
    return build_program(COLLECTOR, programs)


@pytest.fixture
def board(asynqmon: Path, redis_url: str) -> Iterator[Asynqmon]:
    """An asynqmon that shows the server of the test."""
    with Asynqmon(asynqmon, redis_url) as board:
        yield board


@pytest.fixture
def go_peer(peer_program: Path, redis_url: str) -> Iterator[GoPeer]:
    """The real Asynq, on the empty server of the test."""
    with GoPeer(peer_program, redis_url) as peer:
        yield peer


@pytest.fixture
def databases(redis_url: str) -> Iterator[tuple[Database, Database]]:
    """Two empty databases of one server."""
    pair = Database(redis_url, 0), Database(redis_url, 1)
    yield pair
    for one in pair:
        one.close()


@pytest.fixture
def go_side(peer_program: Path, databases: tuple[Database, Database]) -> Iterator[GoSide]:
    """Asynq, on the first database."""
    side = GoSide(peer_program, databases[0].url)
    yield side
    side.close()
