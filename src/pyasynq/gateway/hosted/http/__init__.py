"""Tasks of the kind `http`: guarded, signed requests to other services, whose answers decide the outcome."""
