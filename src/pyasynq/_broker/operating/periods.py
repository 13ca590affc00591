"""Retention of operations and of deleted tasks; a separate module, so that it needs no Redis client."""

from typing import Final

UNDO_SECONDS: Final = 86_400
"""Seconds for which a deletion can be undone."""
OPERATION_SECONDS: Final = 30 * 86_400
"""Seconds after its last step for which an operation and its ledgers are kept."""
