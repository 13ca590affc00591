"""Numbers and JSON values that Redis tests before it sends a task: no match is lost, and most others are."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.scripts import INSPECT_READ_TASKS
from pyasynq._redis.plan import Replay, ScriptCall
from pyasynq.info import ScanFilter, ScanNumber
from pyasynq.operations.query import Place, match_facts, parse_query
from pyasynq.task import TaskState
from tests.contract.test_walks import ids, page
from tests.factories import NOW, Tasks, message_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq._redis.plan import Argument, Plan
    from pyasynq._wire.messages import TaskMessageFields
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

PAYLOADS = {
    "compact": b'{"user":{"id":42},"n":1}',
    "spaced": b'{ "user" : { "id" :\n 42.0 } }',
    "power": b'{"user":{"id":4.2e1}}',
    "text": b'{"user":{"id":"42"}}',
    "list": b'{"user":{"id":[1,42]}}',
    "later": b'{"id":1,"user":{"id":41},"x":{"id":43}}',
    "twice": b'{"user":{"id":7,"id":42}}',
    "escaped": b'{"user":{"\\u0069d":42}}',
    "other": b'{"user":{"id":421}}',
    "negative": b'{"user":{"id":-42}}',
    "literal": b'{"user":{"id":true},"ok":null}',
    "none": b"42",
    "empty": b"",
    "binary": b'\xff"id":42',
    "object": b'{"user":{"id":{"id":42}}}',
    "huge": b'{"user":{"id":12345678901234567890123}}',
}
QUERIES = {
    "payload.user.id:42": "compact spaced power text list twice escaped",
    'payload.user.id:"42"': "text",
    "payload.user.id:>=42": "compact spaced power list twice escaped other huge",
    "payload.user.id:<0": "negative",
    "payload.user.id:41,43": "later",
    "payload.user.id:true": "literal",
    "payload.ok:null": "literal",
    "payload.user.id:12345678901234567890123": "huge",
    "payload.*.id:42": "compact spaced power text list twice escaped",
    "payload.user.id.id:42": "object",
    "payload.user.id:42 OR payload.n:1": "compact spaced power text list twice escaped",
}


@pytest.mark.parametrize("text", QUERIES)
def test_redis_loses_no_match_of_a_value_in_json(perform: Perform, tasks: Tasks, text: str) -> None:
    """A number is found in any notation and surroundings; the query tests the rest."""
    for name, payload in PAYLOADS.items():
        tasks.put(TaskState.ARCHIVED, name, payload=payload)
    query = parse_query(text)
    wanted = query.at(Place(TaskState.ARCHIVED, "default")).scan_filter(NOW)
    found = page(perform, "archived", scan_filter=wanted).tasks
    facts = match_facts(NOW, ())
    assert set(QUERIES[text].split()) == {task.id for task in found if query.matches(task, facts)}
    every = page(perform, "archived").tasks
    assert set(QUERIES[text].split()) == {task.id for task in every if query.matches(task, facts)}
    assert {"none", "empty", "negative"} & {task.id for task in found} <= set(QUERIES[text].split())


@pytest.mark.parametrize(
    ("low", "high", "text", "expected"),
    [
        ("42", "42", "", "compact spaced power list twice escaped binary object"),
        ("43", "", "", "list escaped later other huge"),
        ("", "", "42", "text compact list twice escaped binary object"),
        ("", "", "true", "literal list escaped"),
    ],
)
def test_redis_leaves_out_values_that_are_out_of_range(
    perform: Perform, tasks: Tasks, low: str, high: str, text: str, expected: str
) -> None:
    """Lists and messages with escapes are sent in any case."""
    for name, payload in PAYLOADS.items():
        tasks.put(TaskState.ARCHIVED, name, payload=payload)
    wanted = ScanFilter(texts=((ScanNumber("id", low, high, text),),))
    assert set(expected.split()) == set(ids(page(perform, "archived", scan_filter=wanted)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("retried:3", "b"),
        ("retried:>=3", "b c"),
        ("retried:0", "a d"),
        ("max_retry:300", "c"),
        ("size:>=200", "d"),
        ("size:<3", "a b c"),
        ("failed:<1h", "b"),
        ("failed:>1h", "c"),
        ("retried:3 OR max_retry:300", "b c"),
        ("retried:3 max_retry:300", ""),
    ],
)
def test_redis_tests_the_numbers_of_a_message(
    perform: Perform, tasks: Tasks, text: str, expected: str
) -> None:
    """Redis filters by itself, so it sends only the tasks that match."""
    tasks.put(TaskState.ARCHIVED, "a", payload=b"x")
    tasks.put(TaskState.ARCHIVED, "b", payload=b"x", retried=3, last_failed_at=NOW.seconds - 60)
    tasks.put(TaskState.ARCHIVED, "c", retried=200, retry=300, last_failed_at=NOW.seconds - 7_200)
    tasks.put(TaskState.ARCHIVED, "d", payload=b"x" * 200, type="t" * 200)
    query = parse_query(text).at(Place(TaskState.ARCHIVED, "default"))
    found = page(perform, "archived", scan_filter=query.scan_filter(NOW)).tasks
    matches = {task.id for task in found if query.matches(task, match_facts(NOW, ()))}
    assert set(expected.split()) == matches
    if "OR" not in text and "failed" not in text:
        assert matches == {task.id for task in found}


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize(
    "tail",
    [b"\x30\x05\x30\x03", b"\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x35abcd", b"\x30", b"\x37"],
)
def test_a_number_that_a_script_cannot_read_is_sent(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, tail: bytes
) -> None:
    """The last one counts, as in protobuf; a negative or broken one is left to the query."""
    tasks.put(TaskState.ARCHIVED, "a", "b")
    message = redis_client.hget(tasks.keys.task("a"), "msg")
    redis_client.hset(tasks.keys.task("a"), "msg", message + tail)
    wanted = ScanFilter(texts=((ScanNumber(6, "3", "3"),),))
    reply = page(perform, "archived", scan_filter=wanted)
    # Messages that cannot be decoded are left out at last.
    assert ([], ["a"])[tail not in {b"\x30", b"\x37"}] == ids(reply)


@pytest.mark.parametrize(
    ("field", "number", "fields"),
    [
        (2, 256, {"payload": bytes(256)}),
        (9, 2**49, {"deadline": 2**49}),
    ],
)
def test_redis_reads_numbers_of_several_bytes(
    perform: Perform, tasks: Tasks, field: int, number: int, fields: TaskMessageFields
) -> None:
    """Fails if a byte without bits, or the eighth byte, ends a number or the message."""
    tasks.put(TaskState.ARCHIVED, "a", **fields)
    for low, expected in ((number, ["a"]), (number + 1, [])):
        wanted = ScanFilter(texts=((ScanNumber(field, str(low), ""),),))
        assert expected == ids(page(perform, "archived", scan_filter=wanted))


NUMBERS = (
    *(0, 1, 127, 128, 16_383, 16_384, 2**21, 2**28 - 1, 2**28, 2**34, 2**35 - 1, 2**35, 2**42),
    *(2**53 - 1, 2**53, 2**56 - 1),
)
TAILS = (
    *(b"", b"\xca\x3e\x03abc\x30\x07", b"\x32\x81\x01x", b"\x30\x80\x80\x00", b"\x30\x80", b"\xb2", b"\x08"),
    # A tag may take as many bytes as a number.
    *(b"\x80\x01\x05", b"\x80\x81\x01\x05", b"\x80\x81\x81\x81\x81\x01\x05", b"\x80" * 7 + b"\x10\x05"),
    # A small number may take ten bytes, and a broken one hundreds.
    *(b"\x30\x87" + b"\x80" * 8 + b"\x00", b"\x30" + b"\xff" * 200 + b"\x01"),
)


def reference_number(message: bytes, wanted: int) -> int | None:
    """Return the number in a field, or its length in bytes; None for a message that a script cannot read."""
    at, found = 0, 0

    def read() -> int:
        nonlocal at
        number = shift = 0
        while True:
            number |= (message[at] & 127) << shift
            shift += 7
            at += 1
            if message[at - 1] < 128:
                return number

    try:
        while at < len(message):
            tag = read()
            field, kind = divmod(tag, 8)
            value = read()
            if kind not in {0, 2} or max(tag, value) >= 2**53:
                return None
            found = value if field == wanted else found
            at += value if kind == 2 else 0
    except IndexError:
        return None
    return found


def odd_messages() -> Iterator[bytes]:
    """Yield messages with numbers of each length, cut off anywhere, with odd tails and with random bytes."""
    whole = message_bytes(
        "a", payload=bytes(130), retried=3, retry=200, last_failed_at=NOW.seconds, deadline=1
    )
    yield from (whole[:end] for end in range(len(whole)))
    yield from (whole + tail for tail in TAILS)
    yield from (message_bytes("a", deadline=number, retried=9) for number in NUMBERS)
    drawn = random.Random(7)
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(drawn.randint(1, 4)):
            changed[drawn.randrange(len(changed))] = drawn.randrange(256)
        yield bytes(changed)


@pytest.mark.usefixtures("damage_allowed")
@pytest.mark.parametrize("field", [2, 5, 6, 9, 11])
def test_a_script_reads_the_number_that_a_plain_reader_finds(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, field: int
) -> None:
    """Every task passes whose message the script cannot read, and no broken one makes it fail."""
    expected: dict[int | None, set[str]] = {}
    pipeline = redis_client.pipeline(transaction=False)
    for number, message in enumerate(odd_messages()):
        pipeline.hset(tasks.keys.task(f"{number}"), mapping={"msg": message, "state": "archived"})
        expected.setdefault(reference_number(message, field), set()).add(f"{number}")
    pipeline.execute()
    ids = [part for task_id in set().union(*expected.values()) for part in ("id", task_id)]

    def passing(low: int, high: int) -> Plan[set[str]]:
        test = (f"&n{field}", f"{low} {high}")
        args: tuple[Argument, ...] = (tasks.keys.task_prefix, 1_000, 10**9, *ids, *test)
        _, *found = yield ScriptCall(INSPECT_READ_TASKS, (tasks.keys.lease,), args, Replay.SAFE)
        return {values[0].decode() for values in found}

    unread = expected[None]
    for wanted, matching in expected.items():
        assert wanted is None or matching | unread == perform(passing(wanted, wanted))
