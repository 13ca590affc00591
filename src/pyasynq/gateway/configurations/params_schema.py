"""JSON Schema (2020-12) of a task type: checked when configured, and used to validate params at enqueues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationError, InvalidOptionError

if TYPE_CHECKING:
    from pathlib import Path

MAX_SCHEMA_BYTES: Final = 64_000
"""Maximum bytes of a schema in compact JSON, because each instance reads and keeps all configurations."""
_HIDDEN: Final = "the value"
_LONGEST_SHOWN: Final = 300


class ParamsSchema:
    """A compiled JSON Schema. References to other documents are not loaded; patterns match in linear time.

    Args:
        path: dotted path of the schema in a configuration, for error messages.
        document: the schema, a JSON object.

    Raises:
        InvalidOptionError: for a document that is not a schema, or one that is too large.
        ConfigurationError: without the extra `service`.
    """

    def __init__(self, path: str, document: object) -> None:
        try:
            import jsonschema_rs  # noqa: PLC0415 - of the extra `service`, and only for types with a schema
        except ImportError:
            remedy = 'schemas need `pip install "pyasynq[service]"`'
            raise ConfigurationError(f"{visible(path)}: {remedy}") from None

        if not isinstance(document, dict):
            raise InvalidOptionError(
                path, type(document), "must be a JSON Schema; in a file of the service also its file name"
            )
        size = len(json.dumps(document, separators=(",", ":")))
        if size > MAX_SCHEMA_BYTES:
            raise InvalidOptionError(path, size, f"must have at most {MAX_SCHEMA_BYTES:,} bytes as JSON")
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                document, mask=_HIDDEN, pattern_options=jsonschema_rs.RegexOptions(), offline=True
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            remedy = f"must be a JSON Schema of draft 2020-12: {_first_line(error)}"
            raise InvalidOptionError(path, type(document), remedy) from None

    def check(self, params: object) -> None:
        """Raise `InvalidOptionError`, with the field but without its value, for params that do not fit."""
        for error in self._validator.iter_errors(params):
            place = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in error.instance_path)
            raise InvalidOptionError(f"params{place}", type(params), _first_line(error.message))


def read_schema_file(path: str, name: str, folder: Path) -> Any:
    """Read a schema file as JSON; a relative name is relative to the folder of the configuration.

    Raises:
        InvalidOptionError: for a file that cannot be read, or that is not JSON.
    """
    try:
        return json.loads((folder / name).read_bytes())
    except OSError as error:
        remedy = f"the file of the schema cannot be read: {error.strerror or 'its name is wrong'}"
        raise InvalidOptionError(path, str, remedy) from None
    except (ValueError, RecursionError):
        raise InvalidOptionError(path, str, "the file of the schema is not JSON") from None


def _first_line(error: object) -> str:
    return visible(str(error).partition("\n")[0][:_LONGEST_SHOWN])
