"""A Django project whose worker runs next to it, with the SDK of the task service.

Store the task types, make the database, and serve:

    pyasynq service ../service/service.toml
    DJANGO_SETTINGS_MODULE=service_django.settings python -m django migrate
    PYASYNQ_REDIS_URL=redis://localhost:6379/0 uvicorn service_django.asgi:application
"""
