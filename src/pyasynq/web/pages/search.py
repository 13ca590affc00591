"""Search page: the query bar, and matches that are streamed as they are found."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, PyasynqError, QueryError
from pyasynq.operations.query import Known
from pyasynq.web.page import PAGE_SIZE, Page
from pyasynq.web.pages.bulk import act_choices
from pyasynq.web.pages.queue_tabs import VerbButton, quoted, selection_verbs
from pyasynq.web.pages.queues import read_servers
from pyasynq.web.pages.views import SEARCH, ViewLink, new_view_href, view_links
from pyasynq.web.rendering import Moments, RenderedParts, jinja_environment, render_template
from pyasynq.web.respond import forget_notices, html_stream, page_html, page_response, read_notices
from pyasynq.web.shown_task import STATE_LOOKS, StateLook, TaskRow, task_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.responses import Response

    from pyasynq.operations.selection import Selection
    from pyasynq.web.page import PageRequest

_LONGEST: Final = 2_000
_MOST_FACETS: Final = 8
_MARK: Final = "\x00rows\x00"
"""Placeholder of the result rows in the rendered page; NUL occurs in no text of a template."""
_PROGRAM: Final = """import os
from pyasynq.operations import User
from pyasynq.operations.sync import Operator

with Operator(os.environ["PYASYNQ_REDIS_URL"], User.local()) as operator:
    for page in operator.search({query}):
        for task in page.tasks:
            print(task.queue, task.id)
"""
_EXAMPLES: Final = (
    ("Failed in the last hour", "state:retry,archived failed:<1h"),
    ("Waiting for more than 10 minutes", "waiting:>10m"),
    ("Near their deadline", "deadline:>80%"),
    ("Retried often", "retried:>5"),
)


@dataclass(frozen=True, slots=True)
class Example:
    """An example of a query, as a link."""

    label: str
    href: str


@dataclass(frozen=True, slots=True)
class QueryProblem:
    """Error in a query, with its position."""

    before: str
    wrong: str
    after: str
    sentence: str
    nearest_href: str
    nearest: str


@dataclass(frozen=True, slots=True)
class SearchView:
    """View model of the search page, except what the search finds: rows, facets and links to other pages."""

    query: str
    explain: str
    complete: str
    problem: QueryProblem | None
    views: tuple[ViewLink, ...]
    """Saved views, before the examples."""
    save_href: str
    """Address of the form that saves a new view; empty if the user may not save it."""
    examples: tuple[Example, ...]
    verbs: tuple[VerbButton, ...]
    acts: tuple[tuple[str, str], ...]
    """Bulk actions for all matching tasks: name and label."""
    mark: str
    command: str
    """Command line of the same search, to copy."""
    program: str
    """Python program that finds the same tasks."""


@dataclass(frozen=True, slots=True)
class Facet:
    """Number of matches with one value of a field."""

    label: str
    href: str
    count: int
    look: StateLook | None = None


@dataclass(frozen=True, slots=True)
class FacetGroup:
    """Facet counts of one field, by value."""

    heading: str
    facets: tuple[Facet, ...]


@dataclass(frozen=True, slots=True)
class TailView:
    """View model of the end of the search page, after the result rows."""

    rows: int
    summary: str
    next_page: str
    newest: str
    facets: tuple[FacetGroup, ...]
    hint: str
    hint_href: str
    error: str


async def search_response(ask: PageRequest) -> Response:
    """Answer `/tasks`: the page is sent at once, each match as it is found, and the facets last."""
    began = time.perf_counter()
    text = _query_text(ask)
    problem = None
    explanation = ""
    if text:
        try:
            explanation = str(await ask.operator.explain_search(text))
        except QueryError as error:
            problem = _problem(ask, text, error)
    view = SearchView(
        query=text,
        explain=explanation,
        complete=ask.links.to("complete.json"),
        problem=problem,
        views=await view_links(ask, SEARCH),
        save_href=new_view_href(ask, text) if text and not problem else "",
        examples=tuple(Example(label, ask.links.to("tasks", q=query)) for label, query in _EXAMPLES),
        verbs=_verbs(ask),
        acts=act_choices(ask),
        mark=_MARK,
        # `--` allows a query that begins with a dash.
        command=f"pyasynq search -- {_shell(text)}",
        program=_PROGRAM.format(query=ascii(text)),
    )
    title = f"{text[:60]} · Tasks" if text else "Tasks"
    page = Page("search.html", visible(title), "tasks", view, status=400 if problem else 200)
    if problem or not text:
        return page_response(ask, page, began)
    notices = read_notices(ask)
    head, _, rest = page_html(ask, page, RenderedParts(), began, notices).partition(_MARK)
    response = html_stream(ask.request, _stream(ask, text, view, head, rest))
    if notices:
        forget_notices(ask, response)
    return response


async def complete_response(ask: PageRequest) -> Response:
    """Answer `/complete.json`: completions of a query, and the collections that it would search."""
    text = ask.query.get("q", "")[:_LONGEST]
    caret = ask.number("caret", len(text), _LONGEST)
    offers = [
        one._asdict() for one in await ask.operator.complete_query(text, caret, await _read_known_names(ask))
    ]
    try:
        explanation = str(await ask.operator.explain_search(text)) if text.strip() else ""
    except QueryError as error:
        explanation = error.sentence
    return JSONResponse({"offers": offers, "explain": explanation})


async def _stream(ask: PageRequest, text: str, view: SearchView, head: str, rest: str) -> AsyncIterator[str]:
    yield head
    row_of = jinja_environment().get_template("search_rows.html")
    moments = Moments(ask.now, ask.preferences.time_zone)
    found, last, problem = 0, None, ""
    try:
        async for selection in ask.operator.search(text, cursor=ask.query.get("after", ""), limit=PAGE_SIZE):
            last = selection
            if selection.tasks:
                rows: list[TaskRow] = [task_row(task, ask.links) for task in selection.tasks]
                found += len(rows)
                yield row_of.render(rows=rows, at=moments, verbs=view.verbs)
    except InvalidOptionError:
        problem = "The place in the list is not known any more. Begin with the newest."
    except PyasynqError as error:
        # The response has begun, so the error can only be shown in the page.
        problem = f"The search stopped: {error}"
    tail = _tail(ask, text, found, last, visible(problem))
    yield render_template("search_tail.html", RenderedParts(), {"view": tail})
    yield rest


def _tail(ask: PageRequest, text: str, found: int, last: Selection | None, error: str) -> TailView:
    is_first = not ask.query.get("after")
    hint, href = "", ""
    if not found and not error and (last is None or not last.cursor):
        words = text.split()
        if len(words) > 1:
            hint, href = f"Search without {words[-1]}", ask.links.to("tasks", q=" ".join(words[:-1]))
    return TailView(
        rows=found,
        summary=str(last) if last is not None else "",
        next_page=ask.links.here(after=last.cursor) if last is not None and last.cursor else "",
        newest="" if is_first else ask.links.here(after=None),
        facets=_facets(ask, text, last) if last is not None and found else (),
        hint=hint,
        hint_href=href,
        error=error,
    )


def _facets(ask: PageRequest, text: str, last: Selection) -> tuple[FacetGroup, ...]:
    groups = []
    for heading, field, counts in (
        ("State", "state", last.facets.states),
        ("Queue", "queue", last.facets.queues),
        ("Type", "type", last.facets.types),
    ):
        facets = _facet_list(ask, text, field, counts)
        if len(facets) > 1 or field == "state":
            groups.append(FacetGroup(heading, facets))
    return tuple(groups)


def _facet_list(ask: PageRequest, text: str, field: str, counts: Mapping[str, int]) -> tuple[Facet, ...]:
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_FACETS]
    looks = {look.state.value: look for look in STATE_LOOKS.values()}
    return tuple(
        Facet(
            looks[value].word if field == "state" and value in looks else visible(value),
            ask.links.to("tasks", q=f"{text} {field}:{quoted(value)}"),
            count,
            looks.get(value) if field == "state" else None,
        )
        for value, count in most
        if value != "_other"
    )


def _query_text(ask: PageRequest) -> str:
    """Return the query of the address: the typed text, combined with the filter of a link."""
    text = ask.query.get("q", "").strip()
    return f"{ask.query.get('in', '')}{text}".strip()[: _LONGEST + 1]


def _problem(ask: PageRequest, text: str, error: QueryError) -> QueryProblem:
    end = error.position + max(error.length, 1)
    nearest = (
        text[: error.position] + error.nearest + text[error.position + error.length :]
        if error.nearest
        else ""
    )
    return QueryProblem(
        before=visible(text[: error.position]),
        wrong=visible(text[error.position : end]) or "␣",
        after=visible(text[end:]),
        sentence=error.sentence,
        nearest_href=ask.links.to("tasks", q=nearest),
        nearest=visible(nearest),
    )


def _verbs(ask: PageRequest) -> tuple[VerbButton, ...]:
    known = (
        VerbButton("run_task", "Run now", "r"),
        VerbButton("cancel_task", "Cancel", "c"),
        VerbButton("archive_task", "Archive", "a"),
        VerbButton("delete_task", "Delete…", "#", is_danger=True),
    )
    return (*(verb for verb in known if ask.may(verb.name)), *selection_verbs(ask))


async def _read_known_names(ask: PageRequest) -> Known:
    """Return the names for completions, at most half a minute old."""
    servers = await read_servers(ask)
    published = await ask.target.recent(ask.user, "task types", ask.operator.task_types, 30.0)
    running = (worker.task_type for server in servers for worker in server.active_workers)
    return Known(
        types=list(dict.fromkeys((*(one.type for one in published), *running))),
        servers=[server.id for server in servers],
    )


def _shell(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
