"""The error of a failed sign-in at an OpenID provider."""

from __future__ import annotations


class SignInError(Exception):
    """Error: a sign-in at the OpenID provider failed; the login page shows its text.

    The text never holds a token, a code or another value that the provider or the browser has sent.

    Attributes:
        status: status of the response.
        name: name of the person, if the provider has sent it.
    """

    def __init__(self, text: str, *, status: int = 401, name: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.name = name
