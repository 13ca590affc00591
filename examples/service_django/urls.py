"""The views of the project: one in async code, and one that blocks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from django.http import JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path

from pyasynq.sdk import TaskReq, enqueue, enqueue_sync
from service_django.models import Dataset

if TYPE_CHECKING:
    from django.http import HttpRequest


async def add_dataset(request: HttpRequest) -> JsonResponse:
    """Add a data set, and have its features dumped."""
    dataset = await Dataset.objects.acreate(path=json.loads(request.body)["path"])
    params = {"path": dataset.path, "id": dataset.id}
    accepted = await enqueue(TaskReq(task_id=dataset.id, task_name="dumpfeature", params=params))
    return JsonResponse({"id": dataset.id, "existing": accepted.existing}, status=201)


def get_dataset(_request: HttpRequest, number: int) -> JsonResponse:
    """Answer with a data set."""
    dataset = get_object_or_404(Dataset, id=number)
    shown = {"id": dataset.id, "path": dataset.path, "state": dataset.state, "error": dataset.error}
    return JsonResponse(shown)


def add_picture(request: HttpRequest) -> JsonResponse:
    """Have a picture resized; a view that blocks runs in a thread."""
    picture = json.loads(request.body)["path"]
    return JsonResponse({"id": enqueue_sync(TaskReq(task_name="resize", params={"path": picture})).id})


urlpatterns = [
    path("datasets", add_dataset),
    path("datasets/<int:number>", get_dataset),
    path("pictures", add_picture),
]
