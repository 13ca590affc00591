"""The pytest plugin, in runs of pytest as users have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

CONFIGURATION = """
[pytest]
pyasynq_app = shop:app
addopts = --strict-markers --strict-config -p no:cacheprovider
filterwarnings = error
"""
APP = """
from pyasynq import App

app = App("redis://production.invalid:6379/0")


@app.task("email:deliver", queue="critical")
def deliver(user_id: int) -> str:
    return f"sent {user_id}"


@app.task("email:digest")
async def digest() -> str:
    return "sent"
"""


class Project:
    """A user's project, whose tests are run in a process of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("pytest.ini", CONFIGURATION)
        self.write("shop.py", APP)

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        (self.folder / name).write_text(text, encoding="utf-8")

    def run(self, *arguments: str, ends: str) -> str:
        """Run its tests; return what pytest said, whose last line has to hold these words."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "pytest_pyasynq", *arguments],
            cwd=self.folder,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{self.folder}",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert f"= {ends} in " in said.splitlines()[-1], said
        return said


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with an app and nothing else."""
    return Project(tmp_path)


def test_the_fixture_serves_plain_and_asyncio_tests_without_a_warning(project: Project) -> None:
    """Also with anyio's own plugin, and in a class of unittest by a context manager."""
    project.write(
        "test_shop.py",
        """
import asyncio
import unittest
from datetime import UTC, datetime

import pytest
from pyasynq import testing
from shop import app, deliver, digest


def test_plain(pyasynq_kit):
    deliver.enqueue_sync(1)
    pyasynq_kit.assert_enqueued(deliver, user_id=1, queue="critical")
    assert ["sent 1"] == [attempt.result for attempt in pyasynq_kit.drain_sync()]


def test_nothing_is_left_of_the_test_before(pyasynq_kit):
    pyasynq_kit.refute_enqueued()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_coroutine(pyasynq_kit, anyio_backend):
    await deliver.enqueue(1)
    await digest.enqueue()
    assert 2 == len(await pyasynq_kit.drain())
    await digest.enqueue()


@pytest.mark.pyasynq(start=datetime(2040, 1, 1, tzinfo=UTC))
def test_marked(pyasynq_kit):
    assert datetime(2040, 1, 1, tzinfo=UTC) == pyasynq_kit.now


class TestCase(unittest.TestCase):
    def setUp(self):
        self.kit = self.enterContext(testing.use(app))

    def test_it(self):
        digest.enqueue_sync()
        self.assertEqual("sent", self.kit.drain_sync()[0].result)


class AsyncTestCase(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.kit = await self.enterAsyncContext(testing.use(app))

    async def test_it(self):
        await digest.enqueue()
        self.assertEqual("sent", (await self.kit.drain())[0].result)
""",
    )
    project.run("-p", "anyio.pytest_plugin", ends="6 passed")


@pytest.mark.long
def test_tests_in_parallel_do_not_meet(project: Project) -> None:
    """Each process of pytest-xdist has a server of its own."""
    project.write(
        "test_many.py",
        """
import pytest
from shop import deliver


@pytest.mark.parametrize("number", range(20))
def test_alone(pyasynq_kit, number):
    deliver.enqueue_sync(number)
    assert [number] == [one.arguments["user_id"] for one in pyasynq_kit.enqueued()]
""",
    )
    project.run("-p", "xdist", "-n", "2", ends="20 passed")


def test_fixtures_may_be_overridden(project: Project) -> None:
    """Another app, and other settings for all tests; a marker wins."""
    project.write(
        "test_other.py",
        """
from datetime import UTC, datetime

import pytest
from pyasynq import App


@pytest.fixture
def pyasynq_app():
    return App("redis://other.invalid:6379/0")


@pytest.fixture
def pyasynq_options():
    return {"start": datetime(2041, 1, 1, tzinfo=UTC), "patience": 5}


def test_it(pyasynq_app, pyasynq_kit):
    pyasynq_app.enqueue_sync("work")
    pyasynq_kit.assert_enqueued("work")
    assert 2041 == pyasynq_kit.now.year


@pytest.mark.pyasynq(start=datetime(2042, 1, 1, tzinfo=UTC))
def test_marked(pyasynq_kit):
    assert 2042 == pyasynq_kit.now.year
""",
    )
    project.run(ends="2 passed")


def test_without_a_name_the_fixture_says_how_to_give_one(project: Project) -> None:
    """The message names the setting of pytest and the fixture."""
    project.write("pytest.ini", "[pytest]\n")
    project.write("test_it.py", "def test_it(pyasynq_kit): ...")
    said = project.run(ends="1 error")
    assert 'pyasynq_app = "shop.tasks:app"' in said


def test_a_run_that_does_not_use_the_fixture_does_not_import_pyasynq(project: Project) -> None:
    """Nor asyncio, for its sake."""
    project.write("pytest.ini", "[pytest]\n")
    project.write(
        "test_it.py",
        "import sys\ndef test_it(): assert not [name for name in sys.modules if name == 'pyasynq']",
    )
    project.run(ends="1 passed")


def test_a_failing_handler_shows_where_and_which_task(project: Project) -> None:
    """The line of the handler, and the note."""
    project.write(
        "test_it.py",
        """
from shop import app


@app.task("broken")
async def broken(order: int):
    return {}["total"]


def test_it(pyasynq_kit):
    broken.enqueue_sync(7)
    pyasynq_kit.drain_sync()
""",
    )
    said = project.run(ends="1 failed")
    assert 'return {}["total"]' in said
    assert "of type 'broken' in queue 'default', attempt 1 of 26: retried" in said
