"""The table of filters through a client, on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.client import AsyncClient, JobFilter, JobState
from pinlater.domain.clock import SystemClock
from pinlater.server.operations.job_settings import JobSettings
from tests.assembly import listen, open_core
from tests.contract.stores import make_store
from tests.filter_table import FILTER_CASES, fail_jobs, filter_of_words


@pytest.mark.parametrize("compared_max", [2, 20_000])
async def test_scans_and_counts_find_the_jobs_of_a_filter_however_few_a_call_compares(
    store_kind: str, tmp_path: Path, compared_max: int
) -> None:
    core = await open_core(
        make_store(store_kind, tmp_path), clock=SystemClock(), jobs=JobSettings(max_compared_jobs=compared_max)
    )
    server = await listen(core)
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:
        await client.create_queue("q")
        names = await fail_jobs(client, "q")
        for words, wanted in FILTER_CASES:
            chosen = filter_of_words(words, SystemClock().now_ms())
            found, calls = await scanned(client, chosen)
            assert "".join(sorted(names[job] for job in found)) == wanted, words
            assert calls >= 2 or compared_max > len(names) or chosen.is_plain, words
            assert await counted(client, chosen) == len(wanted), words
    await server.drain(0)
    await core.close()


async def scanned(client: AsyncClient, chosen: JobFilter) -> tuple[list[str], int]:
    """The descriptors of all jobs that fit, and how many calls it took."""
    found: list[str] = []
    after, calls = "0", 0
    while after != "-1":
        page = await client.scan("q", filter=chosen, continuation=after)
        assert not page.incomplete
        found += [job.descriptor for job in page.jobs]
        after, calls = page.continuation, calls + 1
    return found, calls


async def counted(client: AsyncClient, chosen: JobFilter) -> int:
    jobs, after = 0, "0"
    while after != "-1":
        count = await client.count_jobs("q", JobState.PENDING, filter=chosen, continuation=after)
        jobs, after = jobs + count.jobs, count.continuation
    return jobs
