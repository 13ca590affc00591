"""One run of a task: begin, call, ending, decision, record."""
