"""A visitor of the console's pages, and jobs to look at."""

from __future__ import annotations

import pytest

from pinlater.client import Ack, AsyncClient
from pinlater.console.app import Console
from tests.console.pages.visitor import PageVisitor


@pytest.fixture
def visitor(console: Console) -> PageVisitor:
    return PageVisitor(console.app)


async def stored(client: AsyncClient, body: bytes = b"x", queue: str = "mail") -> str:
    """A job that waits; its descriptor."""
    return (await client.enqueue(queue, [body])).descriptors[0]


async def failed_job(client: AsyncClient, error: str = "boom", error_type: str = "ValueError") -> str:
    """A job that has failed; its descriptor."""
    await stored(client)
    [job] = (await client.dequeue("mail", 1)).jobs
    await client.ack(
        "mail",
        [Ack(job.descriptor, succeeded=False, token=job.token, final=True, error_type=error_type, error_text=error)],
    )
    return job.descriptor
