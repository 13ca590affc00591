"""Pytest plugin of pyasynq, with the fixture `pyasynq_kit`. Imports pyasynq only when a test uses it.

    # pyproject.toml
    [tool.pytest.ini_options]
    pyasynq_app = "shop.tasks:app"

    def test_sign_up_welcomes(pyasynq_kit):
        sign_up("ada@example.com")
        pyasynq_kit.assert_enqueued(deliver, template="welcome")

The module is outside of the package, which takes a while to import.
"""

from __future__ import annotations

import pkgutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.testing import Kit

_MARKER = (
    "pyasynq(concurrency=1, start=None, ...): settings of the fixture pyasynq_kit in this test, as "
    "pyasynq.testing.use takes them"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings of the plugin."""
    parser.addini("pyasynq_app", "pyasynq: module and name of the app under test, as in shop.tasks:app")
    parser.addini(
        "pyasynq_redis_url",
        "pyasynq: a database that tests may empty, where no embedded server can be started",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_unconfigure() -> None:
    """Stop the server that the tests have used."""
    testing = sys.modules.get("pyasynq.testing")
    if testing is not None:
        testing.stop_server()


@pytest.fixture
def pyasynq_app(pytestconfig: pytest.Config) -> Any:
    """The app under test, a `Mux` or a function: the setting `pyasynq_app` names it. May be overridden."""
    name = pytestconfig.getini("pyasynq_app")
    if not name:
        pytest.fail(
            "pyasynq: which app is under test? Name it in the configuration of pytest, as in "
            'pyasynq_app = "shop.tasks:app", or write a fixture pyasynq_app that returns it',
            pytrace=False,
        )
    return pkgutil.resolve_name(name)


@pytest.fixture
def pyasynq_options() -> dict[str, Any]:
    """Settings of the kit in all tests, as for `pyasynq.testing.use`. May be overridden."""
    return {}


@pytest.fixture
def pyasynq_kit(
    request: pytest.FixtureRequest, pyasynq_app: Any, pyasynq_options: dict[str, Any]
) -> Iterator[Kit]:
    """The app on a database of this test, with a stopped clock; see `pyasynq.testing.Kit`."""
    from pyasynq import testing  # noqa: PLC0415 - most runs of pytest have no use for it

    marked = [mark.kwargs for mark in request.node.iter_markers("pyasynq")]
    options: dict[str, Any] = {}
    if url := request.config.getini("pyasynq_redis_url"):
        options["url"] = url
    # The nearest marker wins; it comes first.
    for one in (pyasynq_options, *reversed(marked)):
        options.update(one)
    with testing.use(pyasynq_app, **options) as kit:
        yield kit
