"""TLS options of a `rediss://` URL, and the SSL context built from them."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyasynq.errors import ConfigurationError

_CERT_REQS: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
CERT_REQS: Final = tuple(_CERT_REQS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSOptions:
    """The parameters of a URL that begin with `ssl_`, named as in redis-py.

    Attributes:
        ca_certs, ca_path: file and folder of trusted CA certificates; by default those of this computer.
        certfile, keyfile: our certificate and its key; the key may be in the certificate's file.
        password: password of the private key.
        cert_reqs: `none` accepts any certificate; `required` and `optional` mean the same for a client.
        check_hostname: whether the name of the server must be in its certificate.
        server_hostname: name in the server's certificate, if it differs from the host in the URL.
    """

    ca_certs: str | None = None
    ca_path: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = field(default=None, repr=False)
    cert_reqs: str = "required"
    check_hostname: bool = True
    server_hostname: str | None = None

    def context(self) -> ssl.SSLContext:
        """Build the SSL context. Read the files each time: certificates are renewed while programs run.

        Raises:
            ConfigurationError: when a file cannot be read, or has the wrong content.
        """
        context = self._make_context()
        context.check_hostname = self.check_hostname and self.cert_reqs != "none"
        context.verify_mode = _CERT_REQS[self.cert_reqs]
        if self.certfile is not None:
            self._load_certificate(context, self.certfile)
        return context

    def _make_context(self) -> ssl.SSLContext:
        _check_readable("ssl_ca_certs", self.ca_certs)
        _check_readable("ssl_ca_path", self.ca_path)
        try:
            return ssl.create_default_context(cafile=self.ca_certs, capath=self.ca_path)
        except ssl.SSLError as error:
            reason = getattr(error, "reason", error)
            raise ConfigurationError(
                f"ssl_ca_certs={self.ca_certs!r}: not certificates in PEM form ({reason})"
            ) from None

    def _load_certificate(self, context: ssl.SSLContext, certfile: str) -> None:
        _check_readable("ssl_certfile", certfile)
        _check_readable("ssl_keyfile", self.keyfile)
        asked = False

        def password() -> str:
            # Without this function, OpenSSL would ask at the terminal.
            nonlocal asked
            asked = True
            return self.password or ""

        try:
            context.load_cert_chain(certfile, self.keyfile, password)
        except (ssl.SSLError, ValueError) as error:
            key = self.keyfile or certfile
            if asked:
                raise ConfigurationError(
                    f"the key in {key!r} is encrypted: give its password as ssl_password= in the URL"
                ) from None
            raise ConfigurationError(
                f"ssl_certfile={certfile!r}, ssl_keyfile={self.keyfile!r}: "
                f"not a certificate and its key in PEM form ({getattr(error, 'reason', error)})"
            ) from None


def _check_readable(option: str, path: str | None) -> None:
    """Raise `ConfigurationError` for an unreadable file; Python's own errors would not name the file."""
    if path is None:
        return
    try:
        if option == "ssl_ca_path":
            os.scandir(path).close()
        else:
            Path(path).open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"{option}={path!r}: {error.strerror}") from None
