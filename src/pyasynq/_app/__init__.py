"""What stands behind `pyasynq.app`: typed tasks, their declarations, routes and clients."""
