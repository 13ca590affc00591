"""Every change that an operator can make has a form in the dashboard, or a reason why it has none."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pyasynq.web
from pyasynq.operations import VERBS

_SOURCES: Final = Path(str(pyasynq.web.__file__)).parent
_FOR_PROGRAMS: Final = frozenset({"api", "asynqmon"})
_BY_OPERATIONS: Final = "an operation does it, with a preview and progress"
_WITHOUT_A_FORM: Final = {
    "run_tasks": _BY_OPERATIONS,
    "cancel_tasks": _BY_OPERATIONS,
    "archive_tasks": _BY_OPERATIONS,
    "delete_tasks": _BY_OPERATIONS,
    "run_all_tasks": _BY_OPERATIONS,
    "archive_all_tasks": _BY_OPERATIONS,
    "delete_all_tasks": _BY_OPERATIONS,
    "import_tasks": "a file of the command line's export",
    "add_mark": "deployments set marks, by the command line or the API",
    "remove_mark": "as add_mark",
    "set_wait_objective": "set by the command line or the API",
}


def _called_verbs() -> set[str]:
    """Return the changing verbs that the code of pages and forms names as attributes."""
    found = set()
    for path in _SOURCES.rglob("*.py"):
        if _FOR_PROGRAMS.isdisjoint(path.relative_to(_SOURCES).parts):
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            found |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return found & {name for name, verb in VERBS.items() if verb.changes}


def test_every_changing_verb_has_a_form_or_a_reason() -> None:
    """A verb that is added needs one of them; a reason goes when there is a form."""
    changing = {name for name, verb in VERBS.items() if verb.changes}
    assert changing - set(_WITHOUT_A_FORM) == _called_verbs()
