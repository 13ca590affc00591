"""The engine of servers and consumers, in the order of a task's life.

`take` takes tasks from queues, `run` calls handlers and decides about each attempt, `settle` writes the
decisions, and `lease` keeps other servers away meanwhile. `services` are the loops around them. `executor`
runs handlers in child processes, `supervisor` keeps several workers running.
"""
