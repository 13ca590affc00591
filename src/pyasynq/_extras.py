"""Packages of the extras, for errors that say what to install."""

from __future__ import annotations

from typing import Final

_EXTRAS: Final = {
    "aiohttp": "service",
    "jinja2": "web",
    "joserfc": "oidc",
    "jsonschema_rs": "service",
    "msgspec": "web",
    "opentelemetry": "otel",
    "prometheus_client": "metrics",
    "sentry_sdk": "sentry",
    "starlette": "web",
    "uvicorn": "web",
}
"""Extra that brings a package, by the name under which the package is imported."""


def explain_missing(error: ModuleNotFoundError, extra: str = "") -> ModuleNotFoundError:
    """Return an error that names the extra to install; `error` itself if no extra has the package.

    Args:
        error: the error of the import.
        extra: extra that is named, for a package that several extras bring.
    """
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return error
    text = f"this needs the package {package}: type  pip install 'pyasynq[{extra or _EXTRAS[package]}]'"
    if str(error).startswith(f"this needs the package {package}:"):
        text = str(error)  # an inner call has named the extra already
    return ModuleNotFoundError(text, name=error.name)
