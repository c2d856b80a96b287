"""Programs of pods that run here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.pods_here import PodsHere


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[PodsHere]:
    found = PodsHere(tmp_path)
    yield found
    found.stop()
