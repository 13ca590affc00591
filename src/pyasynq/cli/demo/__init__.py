"""`pyasynq demo`: workers read files, one worker is killed, and the demo proves that no task is lost."""
