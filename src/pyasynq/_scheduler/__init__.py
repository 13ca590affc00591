"""What stands behind `pyasynq.scheduler` and `pyasynq.periodic`: entries, their ticks, and who fires them."""
