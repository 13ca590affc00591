"""Handlers that run in processes of their own: `executor="process"`.

`pool.py` and `child.py` are the worker's side, `program.py` and `child_context.py` that of the child
process; what they say to each other is in `frames.py`, `carried_error.py` and `carried_log.py`.
"""
