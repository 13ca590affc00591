"""Handler of `POST /v1/tasks`: the long form and the short form, checked against the type."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import UNSET
from msgspec.structs import asdict

from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, TaskIDConflictError
from pyasynq.gateway.new_tasks import check_params, enqueue_short, make_callback, short_form_options
from pyasynq.operations.request_keys import options_of_key
from pyasynq.options import EnqueueOptions, resolve_options
from pyasynq.task import EnqueueStatus, Task
from pyasynq.web.api.idempotency import KEY_HEADER, check_fingerprint, read_key
from pyasynq.web.api.json_body import decode_body
from pyasynq.web.api.problem import ProblemError, wrong_value

from .bodies import GoShortTask, NewTask, ShortTask, TaskForm
from .call import answer_json
from .results import answer_result, check_may_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response

    from pyasynq.callbacks import Callback
    from pyasynq.gateway.configurations import TaskConfiguration
    from pyasynq.task import TaskInfo

    from .call import ServiceCall

    Decode = Callable[[bytes, Any], Any]

_PAYLOADS: Final = ("params", "payload", "payload_text", "payload_base64")


class AskedTask(NamedTuple):
    """Request to enqueue a task, read from a body in the long or the short form."""

    type: str
    field: str
    """Name of the body's field that contains the task type."""
    payload: bytes | None
    is_json: bool
    options: dict[str, Any]
    is_short: bool


class PreparedTask(NamedTuple):
    """A checked task, and the request that it was made from."""

    task: Task
    asked: AskedTask


async def serve_enqueue(call: ServiceCall) -> Response:
    """Enqueue a task; with the parameter `wait`, answer when the task has ended."""
    wait = call.values["wait"]
    if wait:
        check_may_read(call)
    content = await call.content(call.parts.max_body)
    decode = partial(decode_body, call.request)
    prepared = await prepare_task(call, content, decode, read_key(call.request))
    info, is_existing = await enqueue_prepared(call, prepared)
    location = {"Location": call.address("tasks", info.queue, info.id)}
    if wait:
        return await answer_result(call, info.queue, info.id, wait, headers=location, is_known=True)
    status = 200 if is_existing else 201
    return answer_json(describe_new_task(info, is_existing=is_existing), status, location)


async def prepare_task(call: ServiceCall, content: bytes, decode: Decode, key: str) -> PreparedTask:
    """Return the checked task of a body, and count it as waiting for its type's `max_pending`.

    Args:
        call: the request.
        content: the body, or one item of it.
        decode: decodes the body as a struct of a given kind.
        key: idempotency key; empty for none.

    Raises:
        ProblemError: for a wrong body, an unknown type, or a full queue.
        PyasynqError: for invalid options.
    """
    asked = _read_body(decode, content)
    configuration = call.find_type(asked.type) or await _find_new_type(call, asked.type, asked.field)
    check_params(configuration, asked.payload, is_json=asked.is_json)
    options = {**configuration.options, **asked.options}
    try:
        if "on_finished" in asked.options:
            options["on_finished"] = await _read_callback(call, asked)
        if key:
            options |= _read_options_of_key(call, asked, content, key)
        if asked.options or key:  # the type's own options are valid already
            resolve_options(options)
        task = Task(configuration.name, asked.payload, **cast("EnqueueOptions", options))
    except InvalidOptionError as error:
        raise name_field(error, asked) from None
    await call.parts.back_pressure.admit(configuration)
    return PreparedTask(task, asked)


async def enqueue_prepared(call: ServiceCall, prepared: PreparedTask) -> tuple[TaskInfo, bool]:
    """Enqueue a task; return it, and whether it existed already.

    Raises:
        ProblemError: for an idempotency key that was used for another task.
        PyasynqError: as `Client.enqueue` does.
    """
    enqueue = _enqueue_short if prepared.asked.is_short else _enqueue
    try:
        return await enqueue(call, prepared.task)
    except InvalidOptionError as error:
        raise name_field(error, prepared.asked) from None


def _read_body(decode: Decode, content: bytes) -> AskedTask:
    """Decode a body as a request to enqueue a task.

    Raises:
        ProblemError: the body is in neither the long nor the short form.
    """
    form: TaskForm = decode(content, TaskForm)
    if form.go_id is not UNSET or form.go_name is not UNSET or form.go_params is not UNSET:
        return _of_short(decode(content, GoShortTask), "TaskName")
    if form.task_id is not UNSET or form.task_name is not UNSET:
        return _of_short(decode(content, ShortTask), "task_name")
    body: NewTask = decode(content, NewTask)
    given = [(name, value) for name in _PAYLOADS if (value := getattr(body, name)) is not UNSET]
    if len(given) > 1:
        raise wrong_value(given[-1][0], f"Give one of {', '.join(_PAYLOADS)}.")
    name, value = given[0] if given else ("", None)
    payload = value.encode() if isinstance(value, str) else None if value is None else bytes(value)
    options: dict[str, Any] = {}
    if body.options is not UNSET:
        options = {name: value for name, value in asdict(body.options).items() if value is not UNSET}
    return AskedTask(body.type, "type", payload, name in {"params", "payload"}, options, is_short=False)


def _of_short(body: ShortTask | GoShortTask, field: str) -> AskedTask:
    options = short_form_options(body.task_id)
    if body.on_finished is not UNSET:
        options["on_finished"] = body.on_finished
    return AskedTask(body.task_name, field, bytes(body.params), is_json=True, options=options, is_short=True)


async def _read_callback(call: ServiceCall, asked: AskedTask) -> Callback:
    """Return the completion callback whose type the body names.

    Raises:
        ProblemError: the type does not exist, or the API key may not use it.
    """
    name = asked.options["on_finished"]
    field = "on_finished" if asked.is_short else "options.on_finished"
    return make_callback(call.find_type(name) or await _find_new_type(call, name, field))


async def _find_new_type(call: ServiceCall, name: str, field: str) -> TaskConfiguration:
    """Poll Redis for a task type that this instance does not know yet; return its configuration.

    Another instance may have stored the type within the last second.

    Args:
        call: the request.
        name: name of the type.
        field: the field of the body that names it.

    Raises:
        ProblemError: the type does not exist, or the API key may not use it.
    """
    await call.parts.follower.refresh()
    found = call.find_type(name)
    if found is None:
        detail = f"There is no task type {visible(name)} for this key."
        raise ProblemError(422, "unknown_task_type", detail, call.nearest_type(name), field=field)
    return found


def _read_options_of_key(call: ServiceCall, asked: AskedTask, content: bytes, key: str) -> dict[str, Any]:
    """Return the enqueue options that make a request with an idempotency key enqueue only one task.

    Raises:
        ProblemError: the request is in the short form, which takes no idempotency key.
    """
    if asked.is_short:
        remedy = "Leave it out: with a task_id, a repeat does not start a second task."
        raise wrong_value(KEY_HEADER, remedy)
    return options_of_key(key, call.key.user.name, content, asked.options)


def name_field(error: InvalidOptionError, asked: AskedTask) -> InvalidOptionError:
    """Return an error that names the field of the body, such as `options.timeout`, in place of the option."""
    if asked.is_short or error.option not in asked.options:
        return error
    return InvalidOptionError(f"options.{error.option}", error.value, error.remedy)


async def _enqueue(call: ServiceCall, task: Task) -> tuple[TaskInfo, bool]:
    info = await call.parts.client.enqueue(task)
    check_fingerprint(task, info)
    return info, info.enqueue_status not in {None, EnqueueStatus.ENQUEUED}


async def _enqueue_short(call: ServiceCall, task: Task) -> tuple[TaskInfo, bool]:
    """Enqueue a task with a chosen id, unless a task with this id waits or runs.

    Return the new or existing task, and whether it existed already.
    """
    try:
        return await enqueue_short(call.parts.client, call.parts.operator, task)
    except TaskIDConflictError:
        detail, remedy = "The task ends again and again.", "Send it again."
        headers = {"Retry-After": "1"}
        raise ProblemError(409, "task_id_conflict", detail, remedy, headers=headers) from None


def describe_new_task(info: TaskInfo, *, is_existing: bool) -> dict[str, Any]:
    """Return id, queue, type, state and due time of a task in answer to its enqueue request.

    The payload is left out: an existing task may belong to another program.
    """
    return {
        "id": info.id,
        "queue": info.queue,
        "type": info.type,
        "state": str(info.state),
        "process_at": info.next_process_at,
        "existing": is_existing,
    }
