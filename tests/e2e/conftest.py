"""What tests of whole jobs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from job import Job


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Keep the jobs that a test starts, and end what is left of them."""
    started: list[Job] = []
    yield started
    for job in started:
        job.kill_everything()
