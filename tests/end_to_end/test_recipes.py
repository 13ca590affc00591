"""The code of the pages: all of it is Python, and the programs of `docs/recipes.md` and the README run."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fix_worker import Program
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.invariants import RedisClient

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\S+\.py)\n")


def blocks(page: Path) -> list[str]:
    """Return the Python of a page."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def files(page: Path) -> dict[str, str]:
    """Return the page's whole files by the name in their first line."""
    return {match[1]: text for text in blocks(page) if (match := FILE.match(text))}


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """A folder with the files of the recipes; the sign of life is in it too."""
    for name, text in files(ROOT / "docs" / "recipes.md").items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("/tmp/", f"{tmp_path}/"), encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str, url: str = "") -> str:
    """Run Python with these arguments in a folder, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYASYNQ_REDIS_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_said_to_be_python_is(page: Path) -> None:
    """Snippets may await outside of a function."""
    for text in blocks(page):
        compile(text, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    """To files that are there, and to headings that are in them."""
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if heading:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in headings}


def test_the_first_program_of_the_readme_runs_without_a_server(tmp_path: Path) -> None:
    """Enqueue from one process, work in another."""
    (tmp_path / "tasks.py").write_text(files(ROOT / "README.md")["tasks.py"], encoding="utf-8")
    assert "of 'email:deliver' in queue 'critical', pending>" in run(tmp_path, "tasks.py")
    command = "import sys; sys.path.insert(0, '.'); from pyasynq.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "worker", "tasks:app", "--burst"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "delivering welcome" in done.stderr


@pytest.mark.long
def test_every_recipe_can_be_imported(recipes: Path, redis_url: str) -> None:
    """The frameworks are installed for the tests; Django finds its settings. One process imports them all."""
    (recipes / "myapp" / "settings.py").write_text("SECRET_KEY = 'test'\n", encoding="utf-8")
    names = [*files(ROOT / "docs" / "recipes.md")]
    assert {"myapp/fastapi_app.py", "myapp/views.py", "myapp/look.py", "tests/test_tasks.py"} <= {*names}
    modules = [name.removesuffix(".py").replace("/", ".") for name in names]
    run(recipes, "-c", "\n".join(f"import {module}" for module in modules), url=redis_url)


def test_the_worker_program_works_logs_the_task_and_shows_that_it_lives(
    recipes: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """Its sign of life appears with the first health check, here sooner than after ten seconds."""
    program = recipes / "myapp" / "worker_program.py"
    text = program.read_text(encoding="utf-8")
    assert "health_check_interval=10" in text
    program.write_text(
        text.replace("health_check_interval=10", "health_check_interval=0.05"), encoding="utf-8"
    )
    run(recipes, "-c", "from myapp.tasks import deliver; deliver.enqueue_sync(7, 'welcome')", url=redis_url)
    start = f"import sys; sys.path.insert(0, {str(recipes)!r}); from myapp.worker_program import main; main()"
    with Program(sys.executable, "-c", start, PYASYNQ_REDIS_URL=redis_url) as worker:
        worker.wait_for("INFO email:deliver .* delivering welcome to 7")
        wait_until((recipes / "worker-alive").exists)
        assert 0 == worker.terminate()
    assert 0 == redis_client.llen("asynq:{critical}:active")


@pytest.mark.long
def test_the_tests_of_the_recipes_pass(recipes: Path) -> None:
    """The whole way included, without a server to install."""
    assert "2 passed" in run(
        recipes, "-m", "pytest", "-q", "-p", "no:valkey", "-p", "no:cacheprovider", "tests"
    )


@pytest.mark.long
def test_the_tests_of_the_page_on_testing_pass(tmp_path: Path) -> None:
    """They run unchanged, with warnings as errors."""
    for name, text in files(ROOT / "docs" / "testing.md").items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\npyasynq_app = shop.tasks:app\nfilterwarnings = error\n", encoding="utf-8"
    )
    plugins = (
        "-p",
        "no:valkey",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_pyasynq",
    )
    assert "20 passed" in run(tmp_path, "-m", "pytest", "-q", "--strict-markers", *plugins, "tests")


@pytest.mark.long
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    """Enqueue, work, fail for good, wait for a result, test: with the server that it starts itself."""
    for name, text in files(ROOT / "docs" / "tutorial.md").items():
        (tmp_path / name).write_text(text.replace("retry_delay=1)", "retry_delay=0.01)"), encoding="utf-8")

    assert 2 == run(tmp_path, "shop.py").count("of 'order:confirm' in queue 'default', pending>")
    start = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.insert(0, '.'); "
    start += "from pyasynq.cli import main; main()"
    with Program(sys.executable, "-c", start, "worker", "orders:app") as worker:
        worker.wait_for("order 1 is confirmed")
        worker.wait_for("LookupError: there is no gold .* attempt 4 of 4, archived")
        assert "tea is on its way\n" == run(tmp_path, "ask.py")
        assert 0 == worker.terminate()
    plugins = ("-p", "no:valkey", "-p", "no:cacheprovider")
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-q", *plugins, "test_orders.py")


def test_a_look_tells_where_tasks_are_and_why_they_failed(recipes: Path, redis_url: str) -> None:
    """From a second process, with the app's own URL."""
    code = (
        "from myapp.tasks import app; from pyasynq import WorkerConfig;"
        "app.enqueue_sync('type:unknown', max_retry=0);"
        "raise SystemExit(app.run_worker(WorkerConfig(burst=True)))"
    )
    run(recipes, "-c", code, url=redis_url)
    told = run(recipes, "-m", "myapp.look", url=redis_url)
    assert "default: 0 pending, 0 active, 0 to be retried,\n  1 archived" in told
    assert 'type:unknown 0/0: handler not found for task "type:unknown"' in told


def worked(folder: Path, recipe: str, calls: str, url: str) -> list[str]:
    """Make the calls of a recipe, run what waits in a worker, make them again; return what was printed."""
    (folder / f"{recipe}.py").write_text(files(ROOT / "docs" / "unique.md")[f"{recipe}.py"], encoding="utf-8")
    program = f"""
import asyncio
import {recipe} as recipe
from pyasynq import Inspector, WorkerConfig

async def make_calls():
    async with recipe.app, Inspector(recipe.app.url) as inspector:
        {calls}
        await inspector.run_all("default", "scheduled")

for _ in range(2):
    asyncio.run(make_calls())
    recipe.app.run_worker(WorkerConfig(burst=True))
"""
    (folder / "program.py").write_text(program, encoding="utf-8")
    return run(folder, "program.py", url=url).splitlines()


def test_the_debounce_recipe_runs_the_last_of_many_changes(tmp_path: Path, redis_url: str) -> None:
    """The last revision is indexed for the changes, and once more after that run."""
    calls = "for revision in range(3): await recipe.changed(7, revision)"
    assert ["indexing revision 2 of 7"] * 2 == worked(tmp_path, "debounce", calls, redis_url)


def test_the_throttle_recipe_runs_one_in_its_time(tmp_path: Path, redis_url: str) -> None:
    """The throttle holds even if the first task is finished already."""
    calls = "print([await recipe.went_down('shop') for _ in range(2)])"
    printed = ["[True, False]", "shop is down", "[False, False]"]
    assert printed == worked(tmp_path, "throttle", calls, redis_url)
