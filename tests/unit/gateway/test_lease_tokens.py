"""Lease tokens: who may open them, and what is refused."""

from __future__ import annotations

import base64
import string

import pytest

from pyasynq.errors import ConfigurationError
from pyasynq.gateway.leases import InvalidTokenError, Keyring, LeaseToken
from pyasynq.web.auth.secret import SigningSecret

OLD, NEW = b"o" * 32, b"n" * 32
TOKEN = LeaseToken("resize", "a/ü.\udcff", "server/1/leased/1700000000/1700000600", "key-1", "worker-1")
ALPHABET = string.ascii_letters + string.digits + "-_"


def test_a_token_is_opened_by_any_instance_with_the_key() -> None:
    """All that names the attempt is in it."""
    text = Keyring([NEW]).seal(TOKEN)
    assert TOKEN == Keyring([NEW]).open(text, "key-1")
    assert text.isascii()
    assert not set(text) - set(ALPHABET)


def test_the_first_key_signs_and_all_verify() -> None:
    """So a key can be replaced while workers hold tokens of the old one."""
    before, both, after = Keyring([OLD]), Keyring([NEW, OLD]), Keyring([NEW])
    assert TOKEN == both.open(before.seal(TOKEN), "key-1")
    assert TOKEN == after.open(both.seal(TOKEN), "key-1")
    with pytest.raises(InvalidTokenError):
        after.open(before.seal(TOKEN), "key-1")


def test_the_keys_come_from_the_secret_of_the_service() -> None:
    """One purpose of several, each with keys of its own."""
    old, both = SigningSecret("x" * 16), SigningSecret("y" * 16 + "," + "x" * 16)
    assert TOKEN == Keyring.derive(both).open(Keyring.derive(old).seal(TOKEN), "key-1")
    assert old.derive("lease token") == old.derive_all("lease token")[0] != old.derive("sessions")


@pytest.mark.parametrize("key_id", ["key-2", "", "key-1 ", "schlüssel", "\udcff"])
def test_a_token_is_bound_to_its_api_key(key_id: str) -> None:
    """Another tenant's worker may have seen it in a log."""
    for owner in ("key-1", "?"):
        text = Keyring([NEW]).seal(TOKEN._replace(key_id=owner))
        with pytest.raises(InvalidTokenError):
            Keyring([NEW]).open(text, key_id)


def test_every_altered_character_is_refused() -> None:
    """Also the last one, of which Base64 ignores some bits."""
    keyring = Keyring([NEW])
    text = keyring.seal(TOKEN)
    for at in range(len(text)):
        for other in ALPHABET:
            if other != text[at]:
                with pytest.raises(InvalidTokenError):
                    keyring.open(text[:at] + other + text[at + 1 :], "key-1")


def test_fields_cannot_be_shifted_into_one_another() -> None:
    """Their lengths are signed too."""
    keyring = Keyring([NEW])
    one = keyring.seal(LeaseToken("ab", "c", "r", "k"))
    two = keyring.seal(LeaseToken("a", "bc", "r", "k"))
    assert one != two
    assert LeaseToken("a", "bc", "r", "k") == keyring.open(two, "k")


@pytest.mark.parametrize(
    "text",
    ["", "=", "A", "AQ==", "ü", "\udcff", "\0", "A" * 5_000_000, None, 7, b"AQ", "AQ" * 20, "+/+/", " "],
)
def test_a_text_that_is_not_a_token_is_refused(text: object) -> None:
    """It is a part of an address, which anyone may write."""
    with pytest.raises(InvalidTokenError):
        Keyring([NEW]).open(text, "key-1")


def test_the_same_bytes_written_in_another_way_are_refused() -> None:
    """One attempt has one text, so that texts can be compared."""
    keyring = Keyring([NEW])
    text = keyring.seal(TOKEN)
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    for other in (text + "=", text + "\n", " " + text, base64.b64encode(data).decode() + "=="):
        with pytest.raises(InvalidTokenError):
            keyring.open(other, "key-1")


@pytest.mark.parametrize("keys", [[], [b"short"], [NEW, b""]])
def test_a_key_that_can_be_guessed_is_refused(keys: list[bytes]) -> None:
    """Every token would be worth nothing."""
    with pytest.raises(ConfigurationError, match="at least 16 bytes"):
        Keyring(keys)
