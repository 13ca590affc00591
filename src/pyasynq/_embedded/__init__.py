"""Implementation of the embedded server: find, start, share and stop a Redis or Valkey process.

Public: `pyasynq.embedded`.
"""
