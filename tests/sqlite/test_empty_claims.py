"""A dequeue of a queue without due jobs: the counters in memory say so, and no table is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sqlite.conftest import NOW, Bench
from tests.statements import noted_statements


@pytest.mark.parametrize("history", ["new queue", "all claimed", "later", "reopened"])
async def test_a_claim_of_an_empty_queue_reads_and_writes_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: str
) -> None:
    """It takes the turn of a transaction, which waits for other processes on the file and looks for their changes, and ends it."""
    sent = noted_statements(monkeypatch)
    bench = Bench(tmp_path / "jobs.db")
    await bench.open()
    if history != "new queue":
        await bench.insert(3, run_after_ms=NOW + 1_000 if history == "later" else NOW)
        assert len(await bench.claim(5)) == (0 if history == "later" else 3)
    if history == "reopened":
        await bench.shard.close()
        await bench.open()
    sent.clear()
    commits = bench.shard.commits
    for _ in range(2):
        assert await bench.claim(5) == []
    assert sent == ["BEGIN IMMEDIATE", "COMMIT"] * 2
    assert bench.shard.commits == commits
    await bench.shard.close()
