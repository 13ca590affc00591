"""Names of other task queues' methods, such as `delay`, and our replacements, for error messages."""

from __future__ import annotations

from typing import Final

_ENQUEUE: Final = "write `await {name}.enqueue(...)`, or `{name}.enqueue_sync(...)` in blocking code"
_WITH_OPTIONS: Final = (
    "write `await {name}.options(process_in=...).enqueue(...)`, or `.enqueue_sync(...)` in blocking code"
)
_TASK: Final = "write `{name}.task(...)`, which `app.enqueue_many` and `app.schedule` take"
_OPTIONS: Final = "write `{name}.options(queue=..., process_in=...)`"
_ELSEWHERE: Final = {
    "delay": _ENQUEUE,
    "send": _ENQUEUE,
    "kiq": _ENQUEUE,
    "defer": _ENQUEUE,
    "defer_async": _ENQUEUE,
    "push": _ENQUEUE,
    "submit": _ENQUEUE,
    "apply_async": _WITH_OPTIONS,
    "send_with_options": _WITH_OPTIONS,
    "schedule": _WITH_OPTIONS,
    "s": _TASK,
    "si": _TASK,
    "signature": _TASK,
    "message": _TASK,
    "configure": _OPTIONS,
    "kicker": _OPTIONS,
}


def suggest_replacement(task: object, attribute: str) -> str:
    """Return a hint at our counterpart of another library's attribute, to append to an error; else empty."""
    remedy = _ELSEWHERE.get(attribute)
    name = vars(task).get("__name__") or "task"
    return f": {remedy.format(name=name)}" if remedy else ""
