"""Reference to a secret: the name of an environment variable or of a file, never the secret itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyasynq.errors import ConfigurationError, InvalidOptionError

_LONGEST_BYTES: Final = 100_000
_SCHEMES: Final = ("env", "file")


@dataclass(frozen=True, slots=True)
class SecretReference:
    """Where a secret is: `env:NAME` or `file:/run/secrets/name`.

    Attributes:
        path: dotted path of the reference in the service's file, for error messages.
        scheme: `env` or `file`.
        name: name of the variable or file.
    """

    path: str
    scheme: str
    name: str

    def read(self) -> str:
        """Read the secret from its variable or file, and strip white space. A file is read at each call.

        Raises:
            ConfigurationError: the secret is missing; the error names the reference, never the content.
        """
        try:
            if self.scheme == "env":
                text = os.environ[self.name]
            else:
                with Path(self.name).open("rb") as file:
                    text = file.read(_LONGEST_BYTES).decode()
        except (KeyError, OSError, ValueError) as error:
            reason = "is not set" if self.scheme == "env" else f"cannot be read ({type(error).__name__})"
            raise ConfigurationError(f"{self.path}: {self.scheme}:{self.name} {reason}") from None
        if not text.strip():
            raise ConfigurationError(f"{self.path}: {self.scheme}:{self.name} is empty")
        return text.strip()


def parse_secret_reference(path: str, value: object) -> SecretReference:
    """Parse a reference to a secret: `env:NAME` or `file:/path`.

    Raises:
        InvalidOptionError: for anything else; the message does not repeat the text, which may be a secret.
    """
    scheme, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if scheme not in _SCHEMES or not name or (scheme == "file" and not name.startswith("/")):
        remedy = "must name where the secret is: env:NAME or file:/run/secrets/name"
        raise InvalidOptionError(path, type(value), remedy)
    return SecretReference(path, scheme, name)
