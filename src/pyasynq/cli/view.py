"""The commands `pyasynq view`: saved views, which the dashboard has as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pyasynq._face_records.saved_views import SAVED_VIEWS, describe_saved_view
from pyasynq._visible_text import visible
from pyasynq.cli.choice import within_queues
from pyasynq.cli.completion import complete_where
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.search import limit_option, show_search
from pyasynq.errors import nearest

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.operations import SavedView

_PAGE: Final = "search"
"""Name of the dashboard's page that runs queries."""


@click.group(cls=NounGroup, aliases={"ls": "list", "rm": "remove", "delete": "remove"})
def view() -> None:
    """Save queries under a name; list, run, and remove them."""


@view.command("list", examples=("pyasynq view ls",))
@operator_command
async def list_views(session: Session) -> None:
    """List your views, then those that others share."""

    async def gather() -> list[Record]:
        return [describe_saved_view(saved) for saved in await session.operator.views()]

    await session.show(SAVED_VIEWS, gather)


@view.command("save", examples=("pyasynq view save timeouts 'state:retry,archived error:timeout' --share",))
@click.argument("name")
@click.argument("query", shell_complete=complete_where)
@click.option("--share", is_flag=True, help="Let all users see it.")
@operator_command
async def save_view(session: Session, name: str, query: str, *, share: bool) -> None:
    """Save a query as a view; your own view of the same name is replaced."""
    save = session.operator.share_view if share else session.operator.save_view
    saved = await save(name, _PAGE, query)
    if session.printer.is_for_people:
        click.echo(
            f"Saved view {visible(saved.name)}. Run it with  pyasynq view run {visible(name)}", err=True
        )
    else:
        session.printer.records(SAVED_VIEWS, [describe_saved_view(saved)])


@view.command("run", examples=("pyasynq view run timeouts", "pyasynq view run timeouts -o name"))
@click.argument("name")
@limit_option
@operator_command
async def run_view(session: Session, name: str, limit: int) -> None:
    """Find the tasks that match the query of a saved view."""
    saved = await _find_view(session, name)
    query = within_queues(saved.query, [saved.queue] if saved.queue else [])
    await show_search(session, query, "", limit)


@view.command("remove", examples=("pyasynq view rm timeouts",))
@click.argument("name")
@operator_command
async def remove_view_command(session: Session, name: str) -> None:
    """Remove a saved view of yours, or one that is shared."""
    saved = await _find_view(session, name)
    is_own = saved.owner == session.operator.user.name
    remove = session.operator.delete_view if is_own else session.operator.delete_shared_view
    if await remove(saved.view):
        click.echo(f"Removed view {visible(name)} of {visible(saved.owner)}.", err=True)


async def _find_view(session: Session, name: str) -> SavedView:
    """Return the view with this name or id; the user's own views take precedence over shared views.

    Raises:
        click.ClickException: if there is none.
    """
    views = await session.operator.views()
    for saved in views:
        if name in {saved.name, saved.view}:
            return saved
    known = [visible(saved.name) for saved in views]
    raise click.ClickException(f"there is no view {visible(name)}{nearest(name, known)}; pyasynq view ls")
