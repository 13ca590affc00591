"""A FastAPI application whose worker runs next to it, with the SDK of the task service."""
