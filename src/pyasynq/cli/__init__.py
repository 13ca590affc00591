"""The command line `pyasynq`."""
