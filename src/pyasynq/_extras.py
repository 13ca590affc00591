"""Extras (optional dependencies) by package, for errors that say what to install."""

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
"""Name of the extra that installs a package, by the package's import name."""


def explain_missing(error: ModuleNotFoundError, extra: str = "") -> ModuleNotFoundError:
    """Return an error that names the extra to install; `error` itself if no extra has the package.

    Args:
        error: the error of the import.
        extra: extra to name instead, for a package that several extras install.
    """
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return error
    text = f"this needs the package {package}: type  pip install 'pyasynq[{extra or _EXTRAS[package]}]'"
    if str(error).startswith(f"this needs the package {package}:"):
        text = str(error)  # an inner call has named the extra already
    return ModuleNotFoundError(text, name=error.name)
