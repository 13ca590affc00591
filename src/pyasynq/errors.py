"""The errors of pyasynq."""


class PyasynqError(Exception):
    """The base of every error that pyasynq raises on its own account."""
