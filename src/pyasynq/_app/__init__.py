"""Implementation of `pyasynq.app`: typed tasks, their declarations, routes and clients."""
