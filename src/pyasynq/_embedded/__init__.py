"""Implementation of the embedded server: finding, starting, sharing and ending it.

Public: `pyasynq.embedded`.
"""
