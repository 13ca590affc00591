"""Implementation of `pyasynq.scheduler` and `pyasynq.periodic`: entries, their ticks, and firing them."""
