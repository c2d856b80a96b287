"""The soak's machinery in a few seconds, so that it still works when it is to run for a night."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.soak import SETTLED_AFTER_WINDOWS, WAL_MB_MAX, Window, grown, soak


@pytest.mark.crash
async def test_after_a_short_mixed_load_every_job_has_ended(tmp_path: Path) -> None:
    """Priorities, delays, retries, rejects, snoozes, cancels, unique keys and expiry all at once."""
    lines: list[str] = []
    assert await soak(tmp_path, windows=3, window_seconds=1.0, jobs_per_second=500, seed=1, say=lines.append) == []
    assert len(lines) == 3


def test_growing_memory_is_seen_in_a_long_run() -> None:
    flat = [Window(0, 80.0, 1.0, 1.0, 1.0)] * (3 * SETTLED_AFTER_WINDOWS)
    growing = [Window(0, 80.0 + 5 * number, 1.0, 1.0, 1.0) for number in range(3 * SETTLED_AFTER_WINDOWS)]
    assert grown(flat) == []
    assert len(grown(growing)) == 1
    assert len(grown([Window(0, 80.0, 1.0, WAL_MB_MAX + 1, 1.0)])) == 1
