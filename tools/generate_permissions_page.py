"""Write the tables in docs/permissions.md from the tables of permissions, roles, verbs and acts.

python tools/generate_permissions_page.py           write them
python tools/generate_permissions_page.py --check   say whether they are current; exit code 1 if not
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyasynq.operations import ROLES, SCOPES, VERBS, Permission, ProgramPermission
from pyasynq.operations.api_keys import ADMIN_SCOPE
from pyasynq.operations.operation import PERMISSION_OF_ACT

if TYPE_CHECKING:
    import enum
    from collections.abc import Callable, Iterable, Iterator

    from pyasynq.operations import Verb

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "permissions.md"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table as Markdown."""
    head = list(head)
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _meanings(kind: type[enum.StrEnum]) -> Iterator[tuple[str, str]]:
    """Yield the value of each member of an enumeration, and the docstring below it."""
    source = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = [part for definition in source.body for part in getattr(definition, "body", ())]
    for member, text in itertools.pairwise(body):
        if (
            isinstance(member, ast.Assign)
            and isinstance(member.value, ast.Constant)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield str(member.value.value), " ".join(str(text.value.value).split())


def _permissions() -> str:
    roles = list(ROLES)
    rows = (
        [f"`{name}`", meaning, *("yes" if name in ROLES[role] else "" for role in roles)]
        for name, meaning in _meanings(Permission)
    )
    return _table(["Permission", "Allows to", *roles], rows)


def _program_permissions() -> str:
    return _table(
        ["Permission", "Allows to"],
        ([f"`{name}`", meaning] for name, meaning in _meanings(ProgramPermission)),
    )


def _scopes() -> str:
    rows = (
        [
            f"`{name}`",
            "all of the others, and the role `admin`" if name == ADMIN_SCOPE else _names(permissions),
        ]
        for name, permissions in SCOPES.items()
    )
    return _table(["Scope", "Permissions"], rows)


def _names(permissions: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(permissions))


def _verbs(*, changes: bool) -> str:
    rows = (_row(verb) for verb in VERBS.values() if verb.changes is changes)
    return _table(["Method", "Does", "For", "Needs"], rows)


def _row(verb: Verb) -> list[str]:
    needs = ", ".join(f"`{permission.value}`" for permission in verb.needed)
    return [f"`{verb.name}`", verb.summary, verb.subject.value, needs]


def _acts() -> str:
    rows = ([f"`{act}`", f"`{permission.value}`"] for act, permission in PERMISSION_OF_ACT.items())
    return _table(["Act", "Needs, besides `operations.run`"], rows)


TABLES: Final[dict[str, Callable[[], str]]] = {
    "permissions": _permissions,
    "permissions of programs": _program_permissions,
    "scopes": _scopes,
    "views": functools.partial(_verbs, changes=False),
    "changes": functools.partial(_verbs, changes=True),
    "acts": _acts,
}
"""Functions that write the tables, by name of the table on the page."""


def page_with_tables(text: str) -> str:
    """Return the page with the tables that the code has now. Raises `ValueError` if one has no place."""
    for name, write in TABLES.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not end:
            raise ValueError(f"{PAGE.name} has no place for the table of {name}")
        text = f"{before}{start}{write()}{end}{after}"
    return text


def main(arguments: list[str]) -> int:
    """Write or check the tables; return the exit code."""
    text = PAGE.read_text("utf-8")
    wanted = page_with_tables(text)
    if text == wanted:
        return 0
    if "--check" in arguments:
        sys.stderr.write("docs/permissions.md does not have the tables of the code: run `make sync`\n")
        return 1
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
