"""Tasks on their way into queues: composed, gathered into batches, sent, and what became of each."""
