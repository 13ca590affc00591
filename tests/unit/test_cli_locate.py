"""`MODULE:APP`: what is found, and what is said when it is not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pyasynq.cli.locate import AppImportError, find_app, load_app, load_module
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOP = """
from pyasynq import App
app = App("redis://localhost")
class nested:
    backend = App("redis://elsewhere")
@app.task("a")
async def deliver() -> None: ...
def make_app() -> App: return app
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with modules that no other test has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_app_is_found_in_the_current_folder(folder: Path) -> None:
    """The app may be an attribute of an attribute."""
    (folder / "located_shop.py").write_text(SHOP)
    assert "<App at localhost:6379 with 1 task>" == repr(find_app("located_shop:app"))
    assert "<App at elsewhere:6379 with 0 tasks>" == repr(find_app("located_shop:nested.backend"))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("located_empty", r"'located_empty' names no app: write MODULE:APP, as in located_empty:app"),
        ("shop/tasks.py", r"as in shop.tasks:app"),
        (":app", "names no app: write MODULE:APP, as in myapp.tasks:app"),
        ("located_shop:", "names no app"),
        ("nowhere:app", r"there is no module 'nowhere': looked in the current folder, /.* Python's path"),
        ("nowhere.tasks:app", r"no module 'nowhere.tasks' \(there is no 'nowhere'\)"),
        ("located_shop.py:app", r"no module 'located_shop.py'.*; write located_shop$"),
        ("./located_shop:app", r"^there is no module './located_shop': looked in .*; write located_shop$"),
        (".located_shop:app", r"^there is no module '.located_shop': .*; write located_shop$"),
        ("../located_shop:app", r"^there is no module '../located_shop': .* in Python's path$"),
        ("spam:app", r"no module 'spam': .* in Python's path$"),
        (
            "located_shop:ap",
            r"was found \(.*located_shop.py\), .* no 'ap'; .*: located_shop:app; did you mean 'app'\?$",
        ),
        ("located_shop:deliverr", r"no 'deliverr'; the apps there are: located_shop:app$"),
        ("located_shop:nested.backnd", r"no 'backnd'; the apps .*; did you mean 'backend'\?$"),
        (
            "located_shop:deliver",
            "is of type CoroutineTask, not a pyasynq.App; the apps there are: located_shop:app",
        ),
        ("located_shp:app", r"no module 'located_shp': .*; did you mean 'located_shop'\?$"),
        (
            "located_shop:make_app",
            r"is a function, not a pyasynq.App: call it in the module, as in app = make_app\(\), and name",
        ),
        ("located_empty:app", "it has no 'app'; there is no App in that module"),
        (
            "located_broken:app",
            r"was found, but importing it failed: ZeroDivisionError: .* \[located_bro.*:2\]",
        ),
        ("located_exit:app", r"was found, but importing it failed: SystemExit: 3 \[located_exit.py:2\]"),
        ("located_lacking:app", r"importing it failed: ModuleNotFoundError: No module named 'not_there'"),
        ("located_syntax:app", r"importing it failed: SyntaxError: .*located_syntax.py, line 1"),
    ],
)
def test_a_wrong_reference_says_what_was_looked_for(folder: Path, reference: str, message: str) -> None:
    """And what was found instead, with the nearest name."""
    (folder / "located_shop.py").write_text(SHOP)
    (folder / "located_empty.py").write_text("x = 1\n")
    (folder / "located_broken.py").write_text("\nx = 1 / 0\n")
    (folder / "located_exit.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "located_lacking.py").write_text("import not_there\n")
    (folder / "located_syntax.py").write_text("def (:\n")
    with pytest.raises(ConfigurationError, match=message):
        find_app(reference)


def test_a_further_module_that_is_missing_is_named(folder: Path) -> None:
    """The error is the same as for the app's own module."""
    with pytest.raises(ConfigurationError, match="there is no module 'more_tasks'"):
        load_module("more_tasks")


@pytest.mark.parametrize("reference", ["located_shop", "located_shop.py"])
def test_a_module_alone_lists_the_apps_in_it(folder: Path, reference: str) -> None:
    """They are what could be meant. (D38)"""
    (folder / "located_shop.py").write_text(SHOP)
    with pytest.raises(
        ConfigurationError, match=r"write MODULE:APP, which is one of these: located_shop:app$"
    ):
        find_app(reference)


def test_an_import_that_fails_brings_the_traceback_of_the_users_code(folder: Path) -> None:
    """From the first frame of the module on; without those of the import system and ours. (D38)"""
    (folder / "located_deep.py").write_text("def inner():\n    return 1 / 0\ninner()\n")
    with pytest.raises(AppImportError) as caught:
        find_app("located_deep:app")
    first, *_, last = caught.value.user_traceback.splitlines()
    assert ("Traceback (most recent call last):", "ZeroDivisionError: division by zero") == (first, last)
    assert 2 == caught.value.user_traceback.count("located_deep.py")
    assert 2 == caught.value.user_traceback.count("File ")


def test_an_error_of_ours_at_import_has_the_place_of_the_users_line(folder: Path) -> None:
    """The line that is to be mended, not the one of ours that found it; a traceback would say no more."""
    text = "from pyasynq import App\napp = App()\napp.schedule('* * * * *', 5)\n"
    (folder / "located_wrong.py").write_text(text)
    with pytest.raises(ConfigurationError, match=r"^located_wrong.py:3: .*must be a Task$") as caught:
        find_app("located_wrong:app")
    assert not getattr(caught.value, "user_traceback", "")


def test_a_missing_module_of_the_app_says_who_names_it(folder: Path) -> None:
    """The user has not typed it."""
    (folder / "located_modules.py").write_text("from pyasynq import App\napp = App(modules=['nomod'])\n")
    (folder / "good.py").write_text("")
    with pytest.raises(
        ConfigurationError, match=r"^there is no module 'nomod', which App\(modules=\) names: .*path$"
    ):
        load_app("located_modules:app", (), None)
