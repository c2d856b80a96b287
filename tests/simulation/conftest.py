from __future__ import annotations

from collections.abc import Iterator

import pytest

from pinlater.simulation.isolation import collected_at_the_end


@pytest.fixture
def collected() -> Iterator[None]:
    """For tests that make a cluster themselves; `run` collects by itself."""
    with collected_at_the_end():
        yield
