from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.moments.moments import MOMENTS
from tests.operators_scale import Figures, Work, format_row
from tools.size_report import (
    ENGINE_PATH,
    PACKAGE,
    Size,
    Structure,
    examine,
    import_cycles,
    measure,
    paused_collector,
    percentile,
    read_modules,
    repeated_names,
)

MOST_REPEATED_NAMES = 18
MOST_ENGINE_MODULES = 14
MOST_ENGINE_CLASSES = 30
ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = [
    Requirement(line)
    for line in (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def declared() -> list[Requirement]:
    """Return every requirement of pyproject.toml but those on our own extras."""
    project = PROJECT["project"]
    lines = (
        project["dependencies"] + PROJECT["build-system"]["requires"] + PROJECT["dependency-groups"]["dev"]
    )
    lines += [line for extra in project["optional-dependencies"].values() for line in extra]
    return [requirement for requirement in map(Requirement, lines) if requirement.name != project["name"]]


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_every_declared_dependency_is_pinned_to_a_version_it_allows(requirement: Requirement) -> None:
    """Otherwise the environment holds the package index's newest; a marker may choose between two pins."""
    name = canonicalize_name(requirement.name)
    pins = [pin for pin in PINS if canonicalize_name(pin.name) == name]

    assert pins
    assert len(pins) == len({str(pin.marker) for pin in pins})
    assert all(requirement.specifier.contains(str(pin.specifier).removeprefix("==")) for pin in pins)


def test_every_pin_is_one_exact_version() -> None:
    """With at most a marker behind it: no ranges, no addresses, no options."""
    assert [] == [
        str(pin) for pin in PINS if not re.fullmatch(r"==[^*,]+", str(pin.specifier)) or pin.url or pin.extras
    ]


def test_the_help_of_make_names_every_target_that_a_person_types() -> None:
    """`make` alone is the table of contents."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE)

    assert set(targets) == set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))


def test_the_budgets_of_the_core_part_of_ci_add_up_to_its_22_minutes() -> None:
    """A step that gets more time takes it from another one."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    core = script.partition("\ncore() {")[2].partition("\n}\n")[0]
    budgets = [
        int(number) for number in re.findall(r"""^    step (?:'[^']*'|"[^"]*") (\d+) """, core, re.MULTILINE)
    ]

    assert len(budgets) >= 14
    assert 22 * 60 >= sum(budgets)


def test_ci_can_draw_every_moment() -> None:
    """The names that the script draws from are those of the moments."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("\\\n", "")
    [names] = re.findall(r"draw (midnight .*)", script)

    assert list(MOMENTS) == names.split()


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (95, 4), (100, 4)])
def test_a_percentile_is_one_of_the_numbers(percent: int, expected: int) -> None:
    """The smallest number that this many percent of the numbers do not exceed."""
    assert expected == percentile([1, 2, 3, 4], percent)


def test_the_size_report_counts_what_a_reader_sees(tmp_path: Path) -> None:
    """Lines from `def` to the end, arguments without self, and no generated files."""
    (tmp_path / "a.py").write_text("class A:\n    def f(self, b, *c, d=1, **e):\n        return b\n")
    (tmp_path / "b.py").write_text('"""Generated from a.py."""\n\n\ndef g(): ...\n')

    assert {
        "lines of a file": [Size(3, "a.py")],
        "lines of a function": [Size(2, "a.py:2 f")],
        "lines of a class": [Size(3, "a.py:1 A")],
        "arguments": [Size(4, "a.py:2 f")],
    } == measure(read_modules(tmp_path))


def test_the_size_report_finds_cycles_also_those_for_type_checkers(tmp_path: Path) -> None:
    """A package stands for its __init__ only where no module of the name is meant."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/__init__.py").write_text("")
    (tmp_path / "inner/a.py").write_text("from pyasynq import b\n")
    (tmp_path / "b.py").write_text("if TYPE_CHECKING:\n    from pyasynq.inner import a\n")
    (tmp_path / "c.py").write_text("from pyasynq.b import f\n")
    assert [["b.py", "inner/a.py"]] == import_cycles(read_modules(tmp_path))


def test_the_size_report_finds_public_names_of_several_modules(tmp_path: Path) -> None:
    """Once for each module; methods and private names are not among them."""
    (tmp_path / "a.py").write_text("class A: ...\ndef f(): ...\n_P = 1\nLIMIT: int = 1\nonce = twice = 1\n")
    (tmp_path / "b.py").write_text(
        "class A:\n    def once(self): ...\nasync def f(): ...\n_P = 1\nLIMIT = 2\n"
    )
    both = ["a.py", "b.py"]
    assert {"A": both, "LIMIT": both, "f": both} == repeated_names(read_modules(tmp_path))


def test_the_size_report_finds_imports_in_every_kind_of_block(tmp_path: Path) -> None:
    """An import inside a function, a handler or a case closes a cycle as well."""
    (tmp_path / "a.py").write_text(
        "def f():\n    try:\n        g()\n    except OSError:\n        from pyasynq.b import g\n"
    )
    (tmp_path / "b.py").write_text("match 1:\n    case 1:\n        from pyasynq.c import h\n")
    (tmp_path / "c.py").write_text("class C:\n    if 1: ...\n    else:\n        from pyasynq.a import f\n")
    assert [["a.py", "b.py", "c.py"]] == import_cycles(read_modules(tmp_path))


@pytest.fixture(scope="module")
def structure() -> Structure:
    """Return the structure of the package, which is parsed once and then forgotten."""
    with paused_collector():
        return examine(read_modules(PACKAGE))


@pytest.mark.parametrize("path", ENGINE_PATH)
def test_the_size_report_knows_the_path_of_a_task(path: str) -> None:
    """Without these modules the figures of the next test would shrink by themselves."""
    assert (PACKAGE / path).exists()


def test_a_task_passes_few_modules_and_classes_of_the_engine(structure: Structure) -> None:
    """A reader can follow a task from dequeue to settle."""
    modules, classes = structure.path

    assert MOST_ENGINE_MODULES >= modules
    assert MOST_ENGINE_CLASSES >= classes


def test_no_module_imports_one_that_imports_it(structure: Structure) -> None:
    """Imports for type checkers count, too: the reader follows them as well."""
    cycles = "\n".join(", ".join(cycle) for cycle in structure.cycles)

    assert not cycles, f"move what they share to a lower module, or pass a function or value:\n{cycles}"


def test_few_public_names_belong_to_several_modules(structure: Structure) -> None:
    """A search for a name finds the one thing that it means; the names that are left are right twice."""
    names = "\n".join(f"{name}: {', '.join(paths)}" for name, paths in structure.repeated.items())

    assert MOST_REPEATED_NAMES >= len(structure.repeated), f"rename the one that fewer people use:\n{names}"


def test_a_measured_work_of_operators_over_its_limit_is_told_in_plain_words() -> None:
    """Markup for the table would show as it is on stderr."""
    work = Work("first hits of `[a]`", lambda: None, seconds=0.3)
    row = format_row(work, Figures(seconds=0.4, busy=0.0, calls=1, longest=2.0), 10.0)

    assert ("first hits of `[a]`", "0.40 s of 0.3 s", "0 ms", "1", "2.0 ms of 10", "over") == row
