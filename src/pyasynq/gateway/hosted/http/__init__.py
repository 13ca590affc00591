"""The kind `http`: requests to other services, guarded, signed, and judged by their answers."""
