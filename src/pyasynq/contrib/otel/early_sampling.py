"""Head sampling before a span is made, because making a dropped span takes as long as a short task.

OpenTelemetry's SDK makes a span's ids and describes the span before it calls the sampler. The samplers of the
SDK decide by the trace id and the parent alone, so the decision is made here first. Other samplers, and
providers other than the SDK's, are called as usual.
"""

from __future__ import annotations

import copy
import re
from random import getrandbits, randrange
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

from pyasynq.context import current_task
from pyasynq.contrib.otel.propagation import NO_CONTEXT, NO_SPAN, extract, get_span_context

if TYPE_CHECKING:
    from typing import Self

    from opentelemetry.trace import Tracer

    from pyasynq.context import RunningTask

_SDK_SAMPLERS: Final = "opentelemetry.sdk.trace.sampling"
_RATIO: Final = re.compile(r"TraceIdRatioBased\{([0-9.e+-]+)\}")
_OFF: Final = "AlwaysOffSampler"
_PARENT_BASED: Final = re.compile(r"ParentBased\{root:(.*),remoteParentSampled:.*")
_FOLLOWS_UNSAMPLED: Final = ",remoteParentNotSampled:AlwaysOffSampler,"
ID_BITS: Final = 64
"""Number of low bits of a trace id, which the ratio sampler compares with its bound."""
_LIMIT: Final = 1 << ID_BITS


class Ids(Protocol):
    """Protocol for the part of the SDK's `IdGenerator` that is used."""

    def generate_trace_id(self) -> int:
        """Return a random id of a trace."""

    def generate_span_id(self) -> int:
        """Return a random id of a span."""


class DroppedSpan(NonRecordingSpan):
    """Shared span of all attempts that are not sampled; each attempt still gets its own ids.

    The ids are made on demand. Most ids are never needed, and making them would cost more than the rest of
    the tracing of such an attempt.
    """

    def __init__(self, sampling: EarlySampling, *, is_child: bool) -> None:
        super().__init__(NO_SPAN)
        self._sampling = sampling
        self._is_child = is_child
        self._made: WeakKeyDictionary[RunningTask, SpanContext] = WeakKeyDictionary()

    def get_span_context(self) -> SpanContext:
        """Return the context of the running attempt, marked "not sampled"; an invalid one if none runs."""
        running = current_task.get(None)
        if running is None:
            return NO_SPAN
        made = self._made.get(running)
        # `setdefault`, because two threads of one handler may make a context at the same time.
        return made or self._made.setdefault(running, self._make(running))

    def _make(self, running: RunningTask) -> SpanContext:
        ids = self._sampling.ids
        parent = get_span_context(extract(running.message.headers, ())) if self._is_child else NO_SPAN
        trace_id = parent.trace_id or self._sampling.make_dropped_id()
        state = parent.trace_state if parent.is_valid else None
        return SpanContext(trace_id, ids.generate_span_id(), is_remote=False, trace_state=state)

    def __repr__(self) -> str:
        return f"DroppedSpan({self.get_span_context()!r})"


class EarlySampling:
    """Head sampling before a span is made: the decisions that the SDK's sampler would make.

    Attributes:
        ids: generator of trace ids and span ids.
        bound: a root span is dropped if the low bits of its trace id are not below this number.
        root: context of dropped root spans.
        child: context of dropped spans whose parent is a span of another process.
    """

    def __init__(self, tracer: Tracer, ids: Ids, bound: int, *, follows_unsampled: bool | None) -> None:
        """Store the sampler's rules.

        Args:
            tracer: tracer that makes the spans that are not dropped.
            ids: the tracer's generator of trace ids and span ids.
            bound: a root span is dropped if the low bits of its trace id are not below this number.
            follows_unsampled: True to drop the children of unsampled parents, whatever their trace id; False
                to drop no child. None to decide by the trace id, as for a root span.
        """
        self.ids = ids
        self._tracer = tracer
        self.bound = bound
        self._follows_unsampled = follows_unsampled
        self.root: Final = set_span_in_context(DroppedSpan(self, is_child=False), NO_CONTEXT)
        self.child: Final = set_span_in_context(DroppedSpan(self, is_child=True), NO_CONTEXT)

    @classmethod
    def find(cls, tracer: Tracer) -> Self | None:
        """Return the early sampling for a tracer; None if its sampler must be called for every span."""
        sampler, ids = getattr(tracer, "sampler", None), getattr(tracer, "id_generator", None)
        if sampler is None or ids is None or not _is_of_the_sdk(sampler):
            return None
        text = str(sampler.get_description())
        parent_based = _PARENT_BASED.fullmatch(text)
        root = text if parent_based is None else parent_based[1]
        ratio = _RATIO.fullmatch(root)
        if ratio is None and root != _OFF:
            return None
        bound = 0 if ratio is None else round(float(ratio[1]) * _LIMIT)
        follows = None if parent_based is None else _FOLLOWS_UNSAMPLED in text
        return cls(tracer, ids, bound, follows_unsampled=follows)

    def draw(self) -> int:
        """Return a new trace id for a sampled root span; 0 if the span is dropped."""
        low = getrandbits(ID_BITS)
        return self.make_id(low) if low < self.bound else 0

    def make_id(self, low: int) -> int:
        """Return a random trace id with these low bits."""
        # The high bits come from the user's generator, which may give them a meaning, such as the time.
        return self.ids.generate_trace_id() >> ID_BITS << ID_BITS | low

    def drops_child(self, parent: SpanContext) -> bool:
        """Return whether to drop a span whose parent is in another process. If not, the sampler is called."""
        if self._follows_unsampled is None:
            return parent.trace_id % _LIMIT >= self.bound
        return self._follows_unsampled and not parent.trace_flags.sampled

    def make_dropped_id(self) -> int:
        """Return a random trace id that the sampler drops, here and in downstream processes."""
        return self.make_id(randrange(self.bound, _LIMIT))  # noqa: S311 - an id of a trace

    def tracer_for(self, trace_id: int) -> Tracer:
        """Return a tracer that gives its next root span this trace id, so that the sampler agrees."""
        tracer: Any = copy.copy(self._tracer)
        tracer.id_generator = _GivenTraceId(self.ids, trace_id)
        return tracer  # type: ignore[no-any-return]


class _GivenTraceId:
    """Id generator that returns a given trace id; the tracer's own generator makes the span ids."""

    def __init__(self, ids: Ids, trace_id: int) -> None:
        self._ids = ids
        self._trace_id = trace_id

    def generate_trace_id(self) -> int:
        """Return the given trace id."""
        return self._trace_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ids, name)


def _is_of_the_sdk(sampler: Any) -> bool:
    """Return whether a sampler, and every sampler that it delegates to, is a class of the SDK itself."""
    parts = (sampler, *(one for one in vars(sampler).values() if hasattr(one, "should_sample")))
    return all(type(one).__module__ == _SDK_SAMPLERS for one in parts)
