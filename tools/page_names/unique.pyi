from pyasynq import CoroutineTask

report: CoroutineTask[..., None]
