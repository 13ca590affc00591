"""Settings of the project."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "only for an example")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
INSTALLED_APPS = ["service_django"]
ROOT_URLCONF = "service_django.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATASETS_DATABASE", "datasets.sqlite"),
    }
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"level": "INFO", "handlers": ["console"]},
}
