"""Everything in one file, without a server to install: enqueue from blocking code, then run what is waiting.

Run it:   pip install 'pyasynq[embedded]' && python script.py
"""

from __future__ import annotations

from pyasynq import App, WorkerConfig

app = App("embedded://./script-data")


@app.task("count-words")
async def count_words(text: str) -> int:
    """Count the words of a text."""
    count = len(text.split())
    print(f"{count} words")
    return count


if __name__ == "__main__":
    results = count_words.enqueue_many_sync({"text": "word " * number} for number in range(1, 4))
    print(f"{sum(map(bool, results))} tasks enqueued")
    raise SystemExit(app.run_worker(WorkerConfig(burst=True)))
