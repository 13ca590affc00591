"""One attempt of a task: start, call, ending, decision, record."""
