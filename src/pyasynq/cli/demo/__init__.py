"""`pyasynq demo`: real work on real files, a worker killed on the way, the proof that nothing was lost."""
