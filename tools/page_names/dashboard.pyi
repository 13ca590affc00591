from flask import Flask

from pyasynq import App, TaskInfo

shop: App
flask_app: Flask

def redact(task: TaskInfo) -> TaskInfo | None: ...
def show(task_type: str, data: bytes) -> str | None: ...
