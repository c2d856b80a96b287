"""The page that searches all jobs."""

from __future__ import annotations

import pytest

from pinlater.client import AsyncClient, Job
from pinlater.console.endpoints import search
from pinlater.console.job_search import SearchBounds
from tests.console.pages.conftest import failed_job, stored
from tests.console.pages.visitor import PageVisitor


async def test_the_page_asks_for_a_text_first(visitor: PageVisitor) -> None:
    page = await visitor.page("/search")
    assert "Finds a descriptor or a unique key, whole" in page.text
    assert page.inputs | {"text": "", "queue": ""} == page.inputs


async def test_the_page_shows_jobs_with_the_place_of_the_text(visitor: PageVisitor, client: AsyncClient) -> None:
    failed = await failed_job(client, "The disk is full")
    await client.enqueue("mail", [Job(b"x", headers={"tenant": "disk <b>"})])
    page = await visitor.page("/search?text=disk")
    for text in ("2 found; 2 jobs read.", "header tenant", "error", "ValueError: The disk is full"):
        assert text in page.text
    assert f"/jobs/{failed}" in page.links
    assert "0 found" in (await visitor.page("/search?text=tape&queue=mail")).text


async def test_the_page_says_what_was_not_read(
    visitor: PageVisitor, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await failed_job(client)
    for _ in range(3):
        await stored(client)
    monkeypatch.setattr(search, "SearchBounds", lambda found: SearchBounds(found=found, compared=1))
    page = await visitor.page("/search?text=nothing")
    assert "Not read to the end: mail failed (1), mail due (3): 4 jobs. A queue narrows the search." in page.text
    assert {"/queues/mail?tab=failed", "/queues/mail?tab=due"} <= set(page.links)


async def test_too_long_a_text_is_refused(visitor: PageVisitor) -> None:
    assert "text" in (await visitor.page(f"/search?text={'x' * 201}", 400)).text


async def test_the_field_in_the_head_searches_jobs_if_no_queue_has_the_text(visitor: PageVisitor) -> None:
    answer = await visitor.get("/find?text=order+7", accept="text/html")
    assert (answer.status, answer.headers["location"]) == (303, "/search?text=order+7")
