"""Routes of leases: `/v1/leases` and `/v1/attempts`."""

from __future__ import annotations

import asyncio
import functools
import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.gateway.leases.access import admit
from pyasynq.gateway.leases.acts import ATTEMPT_ACTS
from pyasynq.gateway.leases.bodies import (
    AttemptBatch,
    BatchAnswer,
    BatchItem,
    CompleteAttempt,
    ItemResult,
    LeaseAnswer,
    LeaseRequest,
)
from pyasynq.gateway.leases.hang_up import ClientGoneError, HangUpWatch, ReturnableResponse
from pyasynq.gateway.leases.leased_tasks import describe_attempt
from pyasynq.gateway.leases.problems import to_lease_problem
from pyasynq.web.api.json_body import decode_body, decode_text, read_content

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

    from starlette.requests import Request

    from pyasynq.consumer import Attempt
    from pyasynq.gateway.leases.access import Authenticate, WorkKey
    from pyasynq.gateway.leases.bodies import AttemptAct, Extended, WorkerDescription
    from pyasynq.gateway.leases.leases import Leases

    Endpoint = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger("pyasynq.gateway")

_LARGEST_BODY: Final = 1_000_000
_LARGEST_RESULT: Final = 8_000_000


def lease_routes(
    leases: Leases,
    authenticate: Authenticate,
    admission: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[Route]:
    """Return the routes of `/v1/leases` and `/v1/attempts`.

    Args:
        leases: leases of this instance.
        authenticate: returns the API key of a request, None if it has none.
        admission: context manager around each lease request that does not wait; may raise `ProblemError`.
    """
    api = _LeaseApi(leases, authenticate, admission)
    return [
        _make_route("/v1/leases", api.lease),
        _make_route("/v1/attempts:batch", api.act_on_many),
        *(
            _make_route(f"/v1/attempts/{{token}}:{name}", api.make_act(act))
            for name, act in ATTEMPT_ACTS.items()
        ),
    ]


class _LeaseApi:
    def __init__(
        self,
        leases: Leases,
        authenticate: Authenticate,
        admission: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._leases = leases
        self._authenticate = authenticate
        self._admission = admission

    async def lease(self, request: Request) -> Response:
        """Answer with leased tasks, or 204 if none came within the wait."""
        key = await admit(request, self._authenticate)
        asked: LeaseRequest = await _read(request, LeaseRequest, _LARGEST_BODY)
        # Holding a long poll costs less than refusing it, because its client would send it again.
        with nullcontext() if asked.wait else self._admission():
            return await self._lease(request, key, asked)

    async def _lease(self, request: Request, key: WorkKey, asked: LeaseRequest) -> Response:
        watch = HangUpWatch(request)
        watch.start()
        is_handed_over = False
        try:
            address = request.client.host if request.client else ""
            with self._leases.workers.waiting(key.id, asked.worker, address, asked.queues) as worker_id:
                attempts = await watch.run(self._leases.lease(key, asked), self._leases.put_back)
            if attempts:
                response = self._hand_over(attempts, key, asked.worker, worker_id, watch)
                is_handed_over = True
                return response
        except ClientGoneError:
            _log.debug("worker %s hung up while it waited for a task", visible(asked.worker.name))
        finally:
            if not is_handed_over:
                await watch.stop()
        return Response(status_code=204)

    def _hand_over(
        self,
        attempts: list[Attempt],
        key: WorkKey,
        worker: WorkerDescription,
        worker_id: str,
        watch: HangUpWatch,
    ) -> Response:
        keyring = self._leases.keyring
        try:
            tasks = [describe_attempt(attempt, keyring, key.id, worker_id) for attempt in attempts]
            content = msgspec.json.encode(LeaseAnswer(tasks))
        except BaseException:
            self._leases.put_back(attempts)
            raise
        self._leases.workers.note_leased(worker_id, attempts)

        def on_unsent() -> None:
            back = counted(len(attempts), "task")
            _log.info("worker %s hung up before it was sent %s; put back", visible(worker.name), back)
            self._leases.put_back(attempts, worker_id)

        return ReturnableResponse(content, watch, on_unsent)

    def make_act(self, kind: type[AttemptAct]) -> Endpoint:
        """Return the endpoint of one act on one attempt."""

        async def answer(request: Request) -> Response:
            key = await admit(request, self._authenticate)
            largest = _LARGEST_RESULT if kind is CompleteAttempt else _LARGEST_BODY
            act: AttemptAct = await _read(request, kind, largest)
            return _answer_act(await self._leases.act(key, request.path_params["token"], act))

        return answer

    async def act_on_many(self, request: Request) -> Response:
        """Answer a batch request: extend or end many leased attempts, and return the result of each."""
        key = await admit(request, self._authenticate)
        batch: AttemptBatch = await _read(request, AttemptBatch, _LARGEST_RESULT)
        results = await asyncio.gather(
            *(self._act_on_item(key, at, raw) for at, raw in enumerate(batch.attempts))
        )
        return _answer_json(BatchAnswer(list(results)))

    async def _act_on_item(self, key: WorkKey, at: int, raw: msgspec.Raw) -> ItemResult:
        try:
            item: BatchItem = decode_text(bytes(raw), BatchItem)
            extended = await self._leases.act(key, item.token, item)
        except Exception as error:  # noqa: BLE001 - every error becomes a problem
            problem = to_lease_problem(error)
            if problem.field:
                problem.field = f"attempts[{at}].{problem.field}"
            return ItemResult(problem.status, problem=problem.content())
        return ItemResult(204 if extended is None else 200, extended)


def _make_route(path: str, endpoint: Endpoint) -> Route:
    @functools.wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:  # noqa: BLE001 - every error becomes a problem
            return to_lease_problem(error).response()

    return Route(path, answer, methods=["POST"])


async def _read(request: Request, kind: Any, largest: int) -> Any:
    return decode_body(request, await read_content(request, largest), kind)


def _answer_act(extended: Extended | None) -> Response:
    return Response(status_code=204) if extended is None else _answer_json(extended)


def _answer_json(value: Any) -> Response:
    return Response(
        msgspec.json.encode(value), media_type="application/json", headers={"Cache-Control": "no-store"}
    )
