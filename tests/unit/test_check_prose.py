from __future__ import annotations

import tomllib
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tools.check_prose import (
    ROOT,
    TABLE,
    Finding,
    apply_allowances,
    check_files,
    check_subjects,
    count_words,
    list_files,
    report,
)
from tools.prose_text import read_markdown, read_passages

if TYPE_CHECKING:
    from pathlib import Path


def lines_found(folder: Path, name: str, text: str) -> list[int]:
    """Return the lines of the findings in a file with this text."""
    (folder / name).write_text(dedent(text), encoding="utf-8")
    return [finding.line for finding in check_files([folder / name], folder)]


@pytest.mark.parametrize(
    "text",
    [
        "A key that is no lock.",
        "They were no tasks.",
        "Nobody waits.",
        "Tell whoever asks.",
        "At so many crashes it goes.",
        "The reason stands in the log.",
        "The log says what became of it.",
        "It goes on, whatever of the rest.",
        "It goes on, whatever becomes of the rest.",
        "How the task ends, and what is to become of it.",
        "A task in whatever state.",
        "What stands before an id.",
        "Servers in Go obey no limits.",
        "A set that is no more is skipped.",
        "It is no reason to wait.",
        "Write it anew.",
        "The task beside it.",
        "All but for one.",
        "An error for a name that cannot be.",
        "It tells of what cannot be, and why.",
        "It ends. Of two, one holds.",
        "So many callers wait.",
        "Those of the task.",
        "It ends. Who waits is told.",
        "What the task left is removed.",
    ],
)
def test_each_forbidden_phrase_is_found(tmp_path: Path, text: str) -> None:
    """Each sample breaks one rule, also where its case differs."""
    assert lines_found(tmp_path, "page.md", text) != []


@pytest.mark.parametrize(
    "text",
    [
        "There is no lock.",
        "It is no longer held.",
        "It is no more than a copy.",
        "There is no reason to wait.",
        "The script returns whatever it finds.",
        "It stands for a task.",
        "Who holds the lock?",
        "What happens to a task is on this page, isn't it?",
        "Besides, a task that fails runs again.",
        "Some of those tasks wait, and who waits is listed.",
        "The checker finds `so many` and ``nobody``.",
        "See [the page](https://example.org/so/many/anew).",
        '[the page]: ../so/many "nobody"',
    ],
)
def test_plain_english_and_quoted_code_are_not_found(tmp_path: Path, text: str) -> None:
    """Code between backticks and addresses are not prose."""
    assert lines_found(tmp_path, "page.md", text) == []


def test_python_is_searched_in_docstrings_comments_and_messages(tmp_path: Path) -> None:
    """A name that contains a forbidden word is code; a string of two words is a format."""
    found = lines_found(
        tmp_path,
        "module.py",
        '''\
        """Say it.

        Nobody waits,
        and nobody asks.
        """

        nobody = "nobody", "of nobody"  # for nobody
        text = f"{nobody} is no task"
        ''',
    )

    assert [3, 4, 7, 8] == sorted(found)


def test_names_of_functions_and_classes_are_searched(tmp_path: Path) -> None:
    """Their words are read as a sentence, but may begin with any word."""
    text = """\
        def what_is_no_task_is_refused(): ...
        async def _run_anew(): ...
        class NobodyWaits: ...
        def of_two_the_first(): ...
        def is_not_a_task(): ...
        """

    assert [1, 2, 3] == sorted(lines_found(tmp_path, "a.py", text))


def test_page_templates_are_searched_between_their_tags(tmp_path: Path) -> None:
    """A phrase does not run across a tag; attributes and expressions are code."""
    text = """\
        <p class="nobody">One task.</p>
        <p>{{ nobody }} {% if nobody %}asks{% endif %}</p>
        <p>It is</p><p>no task</p>
        {% if one
           and nobody %}
        <b>Nobody waits.</b>
        """

    assert [6] == lines_found(tmp_path, "a.html", text)


def test_a_phrase_across_two_lines_is_found_at_its_beginning(tmp_path: Path) -> None:
    """Comments on successive lines are read as one, and so is a paragraph."""
    assert [2] == lines_found(tmp_path, "a.py", "# It waits.\n# At so\n# many rounds.\n")
    assert [3] == lines_found(tmp_path, "a.md", "# Title\n\nIt waits so\nmany rounds.\n")
    assert [1] == lines_found(tmp_path, "a.lua", "-- It waits so\n-- many rounds.\nlocal a = 1 -- once\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.lua", "local nobody = 1 -- for nobody"),
        ("a.go", "nobody() // for nobody"),
        ("a.sh", "nobody # for nobody"),
        ("a.toml", "nobody = 1 # for nobody"),
        ("Makefile", "nobody: # for nobody"),
        ("run", "nobody # for nobody"),
    ],
)
def test_other_languages_are_searched_in_comments(tmp_path: Path, name: str, text: str) -> None:
    """One finding a file: the comment, not the name in front of it."""
    assert [1] == lines_found(tmp_path, name, text)


def test_examples_of_a_page_are_searched_in_their_comments_alone(tmp_path: Path) -> None:
    """Output in other blocks is quoted."""
    page = """\
        ```python
        nobody = 1
        nobody = 2  # nobody
        ```
        ```console
        nobody
        ```
        """
    assert [3] == lines_found(tmp_path, "page.md", page)


def test_cells_and_list_items_are_passages_of_their_own() -> None:
    """A sentence does not run from one into the next."""
    page = "# Title\n\n- one\n- two\n  goes on\n\n| a | b |\n|---|---|\n| c | |\n"

    assert ["Title", "one", "two goes on", "a", "b", "c"] == [
        passage.text for passage in read_markdown(page, 0)
    ]


def test_a_sentence_of_a_page_has_at_most_25_words(tmp_path: Path) -> None:
    """It ends at its full stop, also in the middle of a line."""
    longest = "The " * 12 + "\n" + "the " * 12 + "ends. "

    assert [] == lines_found(tmp_path, "page.md", longest + longest)
    assert [2] == lines_found(tmp_path, "page.md", longest + longest.replace("ends", "then it ends"))


def test_a_line_of_a_page_has_at_most_110_characters(tmp_path: Path) -> None:
    """Tables and code may be wider, and an address cannot be broken."""
    wide = "x" * 111

    assert [1] == lines_found(tmp_path, "page.md", wide)
    assert [] == lines_found(tmp_path, "page.md", f"| {wide} |\n```\n{wide}\n```\n[x]({wide})\n")


def test_an_item_of_a_numbered_list_begins_on_the_line_of_its_number(tmp_path: Path) -> None:
    """Markdown shows a number alone as an empty item, and the next numbers as parts of sentences."""
    assert [1] == lines_found(tmp_path, "page.md", "1.\nTake it. 2.\nPut it back.\n")
    assert [] == lines_found(tmp_path, "page.md", "1. Take it.\n2. Put it back.\n\n```\n1.\n```\n")


@pytest.mark.parametrize(("text", "found"), [("# A\n\nAfter this, you can.\n", []), ("# A\n\nIt is.\n", [1])])
def test_a_page_begins_with_what_its_reader_can_do(tmp_path: Path, text: str, found: list[int]) -> None:
    """Pages below docs alone: a README begins with what the project is."""
    (tmp_path / "docs").mkdir()

    assert found == lines_found(tmp_path, "docs/page.md", text)
    assert [] == lines_found(tmp_path, "README.md", text)


def test_code_counts_as_one_word() -> None:
    """Marks between words count for nothing."""
    assert 3 == count_words("call `````` - once,")


def test_generated_files_are_left_to_their_source(tmp_path: Path) -> None:
    """Their prose is that of the file they are made from."""
    (tmp_path / "a.py").write_text('"""Nobody."""\n\n# Generated by tools/unasync.py\n', encoding="utf-8")

    assert [] == read_passages(tmp_path / "a.py")


@pytest.mark.parametrize(
    ("subject", "wrong"),
    [
        ("Add the reading of replicas", 0),
        ("Pass the clock to services", 0),
        ("Added a test", 1),
        ("Adding a test", 1),
        ("Fixes the build", 1),
        ("A round is shorter", 1),
        ("add a test", 1),
        ("docs: add a page", 1),
        ("Add " + "x" * 68, 0),
        ("Add " + "x" * 69, 1),
    ],
)
def test_subjects_of_commits_are_imperatives_of_72_characters(subject: str, wrong: int) -> None:
    """The form of the first word decides."""
    assert wrong == len(list(check_subjects([("abc1234", subject)])))


def test_an_allowance_accepts_its_text_in_its_file_only() -> None:
    """The other findings are left, and an allowance that nothing needs is reported."""
    findings = [
        Finding("a.md", 1, "so many", ""),
        Finding("a.md", 2, "anew", ""),
        Finding("b.md", 1, "so many", ""),
    ]
    needed = {"path": "a.md", "text": "so many", "reason": "a quotation"}
    unused = {"path": "c.md", "text": "so many", "reason": "a quotation"}

    assert (findings[1:], [unused]) == apply_allowances(findings, [needed, unused])


def test_an_allowance_needs_a_reason() -> None:
    """A reader must be able to judge whether it still holds."""
    with pytest.raises(ValueError, match="no reason"):
        apply_allowances([Finding("a.md", 1, "anew", "")], [{"path": "a.md", "reason": ""}])


def test_one_finding_fails_the_check_even_where_it_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A path on the command line chooses what is printed, not what is judged."""
    findings = [Finding("docs/a.md", 1, "x", "y"), Finding("src/a.py", 2, "x", "y")]

    assert 1 == report(findings, [], "docs")
    assert "docs/a.md:1: y; found: x\n2 findings: {'docs': 1, 'src': 1}\n" == capsys.readouterr().out
    assert 1 == report([], [{"path": "c.md", "reason": "a quotation"}])
    assert 0 == report([], [])


def test_the_table_of_the_project_names_files_that_are_checked() -> None:
    """An allowance for a file that is gone, or one without a reason, would go unnoticed."""
    checked = {path.relative_to(ROOT).as_posix() for path in list_files(ROOT)}
    allowances = tomllib.loads((ROOT / TABLE).read_text(encoding="utf-8"))["allowances"]

    assert {"README.md", "tools/check_prose.py", "src/pyasynq/_broker/lua/lease/dequeue.lua"} <= checked
    assert [] == [a for a in allowances if a["path"] not in checked and not a["path"].startswith("commit ")]
    assert all(allowance["reason"] for allowance in allowances)
