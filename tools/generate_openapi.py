"""Write the OpenAPI documents of both APIs, and docs/api.md, from their tables of routes.

    python tools/generate_openapi.py [--check]

With --check nothing is written; exit code 1 says that a file is not current.
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path
from typing import Final

from pyasynq.gateway.api.openapi import SERVICE_DOCUMENT, render_service_document
from pyasynq.web.api.openapi import DOCUMENT, render_document, topic_of
from pyasynq.web.api.table import API_ROUTES, ProgramRoute

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "api.md"
HEAD: Final = """\
# The API of the dashboard

After reading this page you can look into queues and change what waits there from a program, over HTTP.
It is written by `make sync` from the table of routes.

The [dashboard](dashboard.md) answers below `/api/v1`.
`/api/v1/openapi.json` describes every route in OpenAPI 3.1, for clients that are generated and for people.
The routes of asynqmon are [next to it](dashboard.md#programs-written-for-asynqmon).

```console
$ pyasynq web token ci --role operator --auth people
$ curl -H "Authorization: Bearer $TOKEN" localhost:8080/api/v1/queues
$ curl -H "Authorization: Bearer $TOKEN" 'localhost:8080/api/v1/tasks?q=state:archived+error:timeout&limit=10'
$ curl -H "Authorization: Bearer $TOKEN" -X POST localhost:8080/api/v1/queues/emails/tasks/42:run
```

Permissions, redaction and audit are those of every [face](permissions.md): each route calls one method of
`Operator`, and the table below names it.


## Tokens and sessions

A program sends `Authorization: Bearer TOKEN`.
The session of someone who has signed in counts too, for pages of the dashboard's own site.
A change that comes from another site is refused with 403.
A program with a session's cookie sends `X-CSRF-Token`, the field `csrf` of any form,
unless it sends `Origin` or `Sec-Fetch-Site`.
Other sites cannot read anything, because the answers have no CORS headers.
`GET /me` tells who asks, and what that user may.

One user may send 1,200 requests a minute from one address; `dashboard(api_requests=...)` changes that.
Above it the answer is 429 with `Retry-After`.


## What comes back

- JSON, in the records of the [command line's `-o json`](cli.md#schemas-of-the-json) where it has them.
- Times are in RFC 3339 with a zone, durations in seconds.
- Payloads and results are the JSON that they are, or `{"text": ...}`, or `{"base64": ...}`.
  JSON of more than 200 levels is such a text.
  A number with more digits than a float holds comes as a text.
- A list is `{"items": [...], "next": ...}`.
  Pass `next` as `cursor` to go on; it is null at the end.
- Every GET has an `ETag`. With `If-None-Match` the answer is 304 if nothing has changed.
  `PATCH .../limits` with `If-Match` answers 412 if someone else has changed the limits since.
- Names in a path are percent-encoded: `%2F` is a slash in a name.
  A colon may stay, unless the name ends in an act such as `:run`.


## Errors

Every error is a problem (RFC 9457) of the type `application/problem+json`:

```json
{"type": "urn:pyasynq:problem:invalid_value", "title": "Invalid value", "status": 422,
 "code": "invalid_value", "detail": "limit is wrong.", "field": "limit",
 "remedy": "Write a whole number from 1 to 500."}
```

`code` names the kind of error and does not change; `field` is the parameter, header or field that is wrong.
No error shows the value of a payload.

| Status | When |
|---|---|
| 400 | the body is not JSON, or has more than 64 levels |
| 401 | no user, or a token that is wrong or has expired |
| 403 | a permission is missing, named in `permission`; the dashboard is read-only; another site has asked |
| 404 | there is no such thing, or nothing that this user sees |
| 405 | the path has other methods; `Allow` names them |
| 409 | the state does not allow it: the task runs, the queue is not empty, another task holds the lock |
| 412 | it has changed since the `ETag` of `If-Match` |
| 413, 414 | the body has more than 1 MB, or the address is too long |
| 415 | the body is not `application/json` |
| 422 | a parameter or field is unknown or wrong; an idempotency key was used for another task |
| 429 | too many requests |
| 500 | a bug; `number` is in the log |
| 503 | Redis does not answer or refuses; `Retry-After` says when to try again |


## Changes

`?dry_run=true` on any change checks permission, body and state, and changes nothing.
`reason` in the body goes into the audit; DELETE takes it as a parameter.

```console
$ curl -H "Authorization: Bearer $TOKEN" -X DELETE 'localhost:8080/api/v1/queues/emails/tasks/42?dry_run=true'
{"dry_run":true,"verb":"delete_task","summary":"delete a task"}
```

**Many tasks.** `POST /queues/{queue}/tasks:run` and its like take ids, and answer with a result for each.
`POST /operations` does the same for 10,000 ids or for all that a [query](query.md) finds,
as an [operation](operations.md): 202, and `Location` is where its progress is.
Its dry run is the preview. It can be paused, resumed, stopped and undone.

```console
$ curl -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\
    localhost:8080/api/v1/operations \\
    -d '{"act": "run", "query": "state:archived error:timeout", "reason": "the provider is back"}'
```

**Do it once.** A request with `Idempotency-Key` can be sent again after a lost answer:

| Request | With a key |
|---|---|
| `POST /queues/{queue}/tasks`, `.../{task}:copy`, `/schedules/{schedule}:run` | enqueues one task a day |
| `POST /operations` | starts one operation within 30 days |
| `POST /marks` | adds one mark with this text |

A key belongs to its user and queue.
A repeat answers 200 with the task; `enqueue_status` is `ignored` if that task is gone by then.
Another task or operation under the same key is refused with 422.
Without a `task_id` the key and the user's name make the id.
The task carries a header `idempotency-fingerprint`, by which another task is recognised.
Other requests name a state, such as paused or deleted, and reach it however often they are sent.


## Streams

`GET /tasks` with `Accept: application/x-ndjson` exports all that a query finds, one task a line,
as `pyasynq task export` does; `limit` counts only if it is given.
`GET /events` sends events of tasks as they are published, for up to an hour;
an empty line after 15 seconds without one.
An error after the first line is a last line `{"problem": {...}}`.


## Routes

"""


def write_table() -> str:
    """Return the tables of all routes, by topic."""
    parts = []
    for topic, routes in groupby(API_ROUTES, key=topic_of):
        rows = "\n".join(map(_write_row, routes))
        parts.append(
            f"### {topic.replace('-', ' ').capitalize()}\n\n"
            "| Route | What it does | `Operator` | Parameters |\n|---|---|---|---|\n" + rows + "\n"
        )
    return "\n".join(parts)


def _write_row(route: ProgramRoute) -> str:
    names = [f"`{one.name}`" for one in route.parameters] + [f"`{name}`" for name in route.headers]
    verb = f"`{route.verb}`" if route.verb else ""
    return f"| `{route.method} {route.path}` | {route.about} | {verb} | {', '.join(names)} |"


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Write the OpenAPI documents and docs/api.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    is_check = parser.parse_args().check
    files = {
        DOCUMENT: render_document(),
        PAGE: HEAD + write_table(),
        SERVICE_DOCUMENT: render_service_document(),
    }
    outdated = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in outdated:
        if is_check:
            sys.stderr.write(f"not current: {path} (run: python tools/generate_openapi.py)\n")
        else:
            path.write_text(files[path], "utf-8")
    return 1 if is_check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
