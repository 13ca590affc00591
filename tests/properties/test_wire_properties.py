"""Properties of the wire: what is written is read back, and is what the table of fields says."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyasynq._go_duration import format_go_duration, parse_go_duration, to_nanoseconds, to_timedelta
from pyasynq._wire.go_quote import quote_go, unquote_go
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import (
    SchedulerEntry,
    ServerInfo,
    UndecodableMessageError,
    copy_task_message,
    decode_task_message,
    encode_task_message,
    new_task_message,
)
from pyasynq._wire.options_text import Option, OptionName, format_option, parse_option

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
HEADERS = st.dictionaries(TEXTS, TEXTS, max_size=4)

# The fields of a TaskMessage in the order of their numbers, from 1.
TASK_FIELDS = {
    "type": TEXTS,
    "payload": st.binary(),
    "id": TEXTS,
    "queue": TEXTS,
    "retry": INT32,
    "retried": INT32,
    "error_msg": TEXTS,
    "timeout": INT64,
    "deadline": INT64,
    "unique_key": TEXTS,
    "last_failed_at": INT64,
    "retention": INT64,
    "completed_at": INT64,
    "group_key": TEXTS,
    "headers": HEADERS,
}
TASK_VALUES = st.fixed_dictionaries({}, optional=TASK_FIELDS)

INSTANTS = st.datetimes(
    datetime(1, 1, 3),  # noqa: DTZ001  (Hypothesis adds the zone)
    datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9.5))]),
)
DURATIONS = st.integers(-(2**62) // 1000, 2**62 // 1000).map(lambda number: timedelta(microseconds=number))
OPTION_VALUES: dict[OptionName, st.SearchStrategy[Any]] = {
    OptionName.MAX_RETRY: INT64,
    OptionName.QUEUE: TEXTS,
    OptionName.TASK_ID: TEXTS,
    OptionName.GROUP: TEXTS,
    OptionName.TIMEOUT: DURATIONS,
    OptionName.UNIQUE: DURATIONS,
    OptionName.PROCESS_IN: DURATIONS,
    OptionName.RETENTION: DURATIONS,
    OptionName.DEADLINE: INSTANTS.map(lambda instant: instant.replace(microsecond=0)),
    OptionName.PROCESS_AT: INSTANTS.map(lambda instant: instant.replace(microsecond=0)),
    OptionName.HEADER: st.tuples(TEXTS, TEXTS),
}
OPTIONS = st.sampled_from(list(OptionName)).flatmap(
    lambda name: OPTION_VALUES[name].map(lambda value: Option(name, value))
)


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it: seven bits a byte, the lowest first."""
    number %= 2**64
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def field_by_hand(number: int, value: object) -> bytes:
    """Return one field of a message, written without the protobuf library."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    assert isinstance(data, bytes)
    return varint(number << 3 | 2) + varint(len(data)) + data


@given(TASK_VALUES)
def test_a_message_is_written_as_its_table_of_fields_says(values: dict[str, Any]) -> None:
    """Fields ascend by number, what is zero or empty is left out, an entry of a map is never shortened."""
    message = new_task_message(**values)
    plain = b"".join(
        field_by_hand(number, values[name])
        for number, name in enumerate(TASK_FIELDS, start=1)
        if values.get(name) and name != "headers"
    )
    headers = [
        field_by_hand(15, field_by_hand(1, key) + field_by_hand(2, value))
        for key, value in values.get("headers", {}).items()
    ]
    # Protobuf says that the order of a map's entries is fixed on request, but not which one it is.
    assert encode_task_message(message) in {
        plain + b"".join(order) for order in itertools.permutations(headers)
    }


@given(TASK_VALUES.filter(lambda values: any(values.values())))
def test_a_message_comes_back_as_it_was(values: dict[str, Any]) -> None:
    """Every value of every field survives encoding and decoding."""
    message = decode_task_message(encode_task_message(new_task_message(**values)))
    assert values == {
        name: dict(message.headers) if name == "headers" else getattr(message, name) for name in values
    }


@given(TASK_VALUES, st.integers(16, 2**29 - 1), st.one_of(INT64, TEXTS, st.binary()), INT32)
def test_an_unknown_field_survives_a_rewrite(
    values: dict[str, Any], number: int, value: object, retried: int
) -> None:
    """Whatever a later version adds is kept by a copy that is changed."""
    unknown = field_by_hand(number, value)
    copy = copy_task_message(decode_task_message(encode_task_message(new_task_message(**values)) + unknown))
    copy.retried = retried
    expected = new_task_message(**{**values, "retried": retried})
    assert encode_task_message(expected) + unknown == encode_task_message(copy)


@given(st.binary())
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    """No other error than ours leaves the decoder."""
    try:
        message = decode_task_message(data)
    except UndecodableMessageError:
        return
    assert message == decode_task_message(encode_task_message(message) or data)


@given(
    st.builds(
        ServerInfo,
        host=TEXTS,
        pid=INT32,
        server_id=TEXTS,
        concurrency=INT32,
        queues=st.dictionaries(TEXTS, INT32, max_size=4),
        strict_priority=st.booleans(),
        status=TEXTS,
        start_time=st.none() | INSTANTS,
        active_worker_count=INT32,
        engine=TEXTS,
    )
)
def test_a_server_comes_back_as_it_was(server: ServerInfo) -> None:
    """Every value of every field survives."""
    assert server == ServerInfo.decode(server.encode())


@given(
    st.builds(
        SchedulerEntry,
        id=TEXTS,
        spec=TEXTS,
        task_type=TEXTS,
        task_payload=st.binary(),
        enqueue_options=st.lists(TEXTS).map(tuple),
        next_enqueue_time=st.none() | INSTANTS,
        prev_enqueue_time=st.none() | INSTANTS,
    )
)
def test_a_scheduler_entry_comes_back_as_it_was(entry: SchedulerEntry) -> None:
    """Every value of every field survives."""
    assert entry == SchedulerEntry.decode(entry.encode())


@given(INT64)
def test_a_duration_comes_back_as_it_was(nanoseconds: int) -> None:
    """To the nanosecond, over all that Go can hold."""
    assert nanoseconds == parse_go_duration(format_go_duration(nanoseconds))


@given(DURATIONS)
def test_a_timedelta_comes_back_as_it_was(duration: timedelta) -> None:
    """Through nanoseconds and through text."""
    assert duration == to_timedelta(to_nanoseconds(duration))
    assert duration == to_timedelta(parse_go_duration(format_go_duration(duration)))


@given(TEXTS)
def test_a_quoted_text_comes_back_as_it_was(text: str) -> None:
    """And between the quotes is nothing that does not print."""
    literal = quote_go(text)
    assert literal.isprintable()
    assert text == unquote_go(literal)


@given(OPTIONS)
def test_an_option_comes_back_as_it_was(option: Option) -> None:
    """And a reader that ends at the first parenthesis, as Asynq's does, sees all of it."""
    text = format_option(*option)
    assert option == parse_option(text)
    assert len(text) - 1 == text.index(")")


@given(
    st.text()
    | st.sampled_from(list(OptionName)).flatmap(lambda name: st.text().map(lambda text: f"{name}({text})"))
)
def test_any_text_is_an_option_or_reported(text: str) -> None:
    """Reading never raises, and what is not understood is not lost."""
    option = parse_option(text)
    assert isinstance(option, Option) or text == option.text


@given(TEXTS, TEXTS.filter(bool), TEXTS.filter(lambda text: text != "" and ":" not in text))
def test_the_group_of_an_aggregation_set_is_found_for_any_name(queue: str, group: str, set_id: str) -> None:
    """The names of queue and group may have any characters."""
    queue_names = queue_keys(queue)
    assert group == queue_names.find_group_of_set(queue_names.aggregation_set(group, set_id))
