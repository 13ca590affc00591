"""Executor: handlers that run in child processes, with `executor="process"`.

`pool.py` and `child.py` run in the worker, `program.py` and `child_context.py` in the child process. Their
messages are in `frames.py`, `carried_error.py` and `carried_log.py`.
"""
