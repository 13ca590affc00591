"""Secret fields as workers publish them: for which types, and for how long they are kept."""

from __future__ import annotations

from pyasynq.operations.published_secrets import LIFETIME_SECONDS, PublishedSecrets
from pyasynq.task_types import TaskTypeInfo


def test_fields_are_those_of_the_type_and_of_its_prefixes() -> None:
    """A type without secrets has none."""
    published = PublishedSecrets()
    published.learn(
        [
            TaskTypeInfo("pay:card", secrets=("number",)),
            TaskTypeInfo("pay:", secrets=("iban",), is_prefix=True),
            TaskTypeInfo("mail"),
        ]
    )
    assert [("number", "iban"), ("iban",), ()] == [
        published.fields_of(name) for name in ("pay:card", "pay:other", "mail")
    ]


def test_they_are_read_again_after_a_minute() -> None:
    """The names of secrets are read at the start, and again once they are over a minute old."""
    now = [0.0]
    published = PublishedSecrets(lambda: now[0])
    assert published.is_old()
    published.learn([])
    now[0] = LIFETIME_SECONDS
    assert not published.is_old()
    now[0] += 0.1
    assert published.is_old()
