"""`pyasynq demo`: real work on real files, a worker killed in the middle of it, and the proof that nothing was lost."""
