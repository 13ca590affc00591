from pyasynq import EnqueuedTask

handle: EnqueuedTask[dict[str, int]]
