"""PHPUnit tests of `clients/php`, with a real service."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.languages.test_example_workers import service

if TYPE_CHECKING:
    import httpx

__all__ = ["service"]

PACKAGE = Path(__file__).parents[2] / "clients" / "php"
PHPUNIT = shutil.which("phpunit")


@pytest.mark.skipif(PHPUNIT is None, reason="phpunit is missing: install the package phpunit")
def test_the_package_passes_its_tests(service: httpx.Client) -> None:
    """None is skipped: the service is there."""
    done = subprocess.run(
        [str(PHPUNIT), "--configuration", str(PACKAGE)],
        check=False,
        env={**os.environ, "PYASYNQ_SERVICE": str(service.base_url).rstrip("/")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert 0 == done.returncode, done.stdout
    assert "Skipped" not in done.stdout
