"""How the embedded server is found, started, shared and ended; the public face is `pyasynq.embedded`."""
