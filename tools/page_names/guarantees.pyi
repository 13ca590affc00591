from pyasynq import CoroutineTask

deliver: CoroutineTask[..., None]
