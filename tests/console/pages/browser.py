"""Chromium before a console with jobs of every kind, for the tests of one file at a time: pages are real, requests go over sockets."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright

from pinlater.client import Ack, AsyncClient, ClaimedJob, Job
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.console.run import ConsoleServer, listening
from pinlater.domain.body_masks import BodyMasks
from pinlater.domain.clock import SystemClock
from pinlater.domain.link_urls import LinkUrls
from pinlater.domain.refusals import Refusals
from pinlater.server.access.control import AccessControl
from pinlater.server.features.history.sample import QueueSample, pack
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from pinlater.server.storage.commands import SaveSamples, create_queues
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import StoredSample
from tests.assembly import listen, open_core
from tests.console.pages.guarded import Tokens

PROGRAM = shutil.which("chromium") or "/usr/bin/chromium"
NEEDS_CHROMIUM = pytest.mark.skipif(
    not Path(PROGRAM).exists() and "CI" not in os.environ, reason="needs Chromium (scripts/test-packages)"
)
IN_CHROMIUM = [pytest.mark.asyncio(loop_scope="module"), NEEDS_CHROMIUM]
PICTURES = Path(os.environ.get("PINLATER_PICTURES", "var/pictures"))


def at_two_widths_in_both_schemes(test: Any) -> Any:
    """Runs a test for each size of a screen and each colour scheme."""
    schemes = pytest.mark.parametrize("scheme", ["light", "dark"])
    return schemes(pytest.mark.parametrize("width", [390, 1280])(test))


async def defects(page: Page) -> list[tuple[str, ...]]:
    """The defects of access of the page, and whether it scrolls sideways."""
    result = await Axe().run(page)
    serious = [one for one in result.response["violations"] if one["impact"] != "minor"]
    found: list[tuple[str, ...]] = [(page.url, one["id"], one["nodes"][0]["html"][:200]) for one in serious]
    if not await page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
        found.append((page.url, "scrolls sideways", ""))
    return found


OPTIONS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
LINKS = LinkUrls(source="https://git.example.org/main/{file}#L{line}")
Scheme = Literal["light", "dark"]
ERROR = 'Connection closed\nTraceback (most recent call last):\n  File "mailer.py", line 12, in send\n'
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202eevil"


class SampleJobs(NamedTuple):
    """Descriptors. `hostile`: has hostile texts."""

    failed: str
    hostile: str
    waiting: str
    running: str


@dataclass
class BrowsedConsole:
    """A console with its browser. `client`: of a worker.

    `guarded_url`: another console, whose server wants one of the `tokens` and masks bodies, over the same jobs. `core`: of the first
    server.
    """

    url: str
    client: AsyncClient
    browser: Browser
    jobs: SampleJobs
    guarded_url: str = ""
    tokens: Tokens | None = None
    core: Core | None = None

    @property
    def paths(self) -> Sequence[str]:
        """One of each kind of page."""
        jobs = self.jobs
        return (
            "/",
            "/queues/mail",
            "/queues/mail?tab=failed",
            "/queues/mail?task=none&header=tenant%3Dacme",
            "/queues/mail?range=15m",
            "/queues/mail?range=6h&table=true",
            f"/jobs/{jobs.failed}",
            f"/jobs/{jobs.hostile}?view=hex",
            f"/jobs/{jobs.waiting}",
            f"/jobs/{jobs.running}",
            "/failed",
            "/workers",
            "/servers",
            "/search?text=mailer",
            "/audit",
            "/bulk",
            "/queues/mail/bulk?state=failed",
            "/queues/none",
        )

    @asynccontextmanager
    async def tab(
        self, path: str, width: int = 1280, scheme: Scheme = "light", *, script: bool = True, guarded: bool = False
    ) -> AsyncIterator[Page]:
        """A tab that shows a page. Fails if the page logs an error or asks another host."""
        context = await self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        problems: list[str] = []
        page = await context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        url = self.guarded_url if guarded else self.url
        page.on("request", lambda request: None if request.url.startswith(url) else problems.append(request.url))
        await page.goto(url + path)
        yield page
        await context.close()
        assert [problem for problem in problems if "the server responded with a status of 4" not in problem] == []

    async def save_picture(self, page: Page, width: int, scheme: Scheme) -> None:
        """A screenshot of the whole page."""
        name = page.url.removeprefix(self.url).removeprefix(self.guarded_url)
        for kind, descriptor in self.jobs._asdict().items():
            name = name.replace(descriptor, kind)
        name = re.sub(r"\W+", "-", name).strip("-") or "overview"
        await page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png", full_page=True)


@asynccontextmanager
async def browsed_console() -> AsyncIterator[BrowsedConsole]:
    """A memory store, a server with access control and one without, a console before each, and a browser, in this event loop but for
    the browser."""
    shard = MemoryShard()
    await fill_history(shard, SystemClock().now_ms())
    core = await open_core(shard, clock=SystemClock())
    masks = BodyMasks(["images"], ["mail:to"])
    control = AccessControl((), (), core.clock.now_ms, core.clock.monotonic, masks)
    passed = count(step=100)
    control.refusals = Refusals(lambda: next(passed))  # delays nothing
    server, guarded = await listen(core), thrift_server(core, access=control)
    await guarded.start()
    address = f"127.0.0.1:{server.port}"
    async with (
        _console(address) as url,
        _console(f"127.0.0.1:{guarded.port}") as guarded_url,
        AsyncClient(address, source="web-1") as client,
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=OPTIONS)
        yield BrowsedConsole(url, client, browser, await filled(client), guarded_url, Tokens(control), core)
        await browser.close()
    await server.drain(0)
    await guarded.drain(0)
    await core.close()


@asynccontextmanager
async def _console(server: str) -> AsyncIterator[str]:
    """A console of a server; its address."""
    listener = listening("127.0.0.1", 0)
    client = AsyncClient(server, wait_for_servers=False, token="")
    console = ConsoleServer(Console(client, SystemClock().now_ms, LOOPBACK_NAMES, links=LINKS))
    serving = asyncio.create_task(console._serve([listener]))  # without its handlers of signals
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    console.should_exit = True
    await serving


async def fill_history(shard: MemoryShard, now_ms: int) -> None:
    """An hour of `mail`, with two deployments; `images` grows. The queues are as old as the store."""
    await shard.submit(create_queues(["mail", "images"], now_ms))
    first_ms = now_ms // 60_000 * 60_000 - 60 * 60_000
    samples = []
    for minute in range(60):
        wave = 1 + math.sin(minute / 6) + 0.2 * math.sin(2.3 * minute)
        jobs, due = max(1, round(400 * wave)), max(0, round(900 - 15 * minute + 200 * wave))
        spans = tuple(number for bucket in range(30, 50 + minute // 3, 3) for number in (bucket, jobs))
        failed = min(jobs, 40 if 30 <= minute < 36 else minute % 3)
        mail = QueueSample(
            jobs, jobs, jobs - failed, failed, 0, 0, due, 1, 6, 50 * due, spans, spans if minute % 9 else ()
        )
        images = QueueSample(enqueued=5, due=5 * minute, scheduled=0, running=0, oldest_ms=60_000 * minute)
        at_ms = first_ms + minute * 60_000
        samples += [
            StoredSample(60, at_ms, queue, "a", pack(one)) for queue, one in (("mail", mail), ("images", images))
        ]
    for minute, text in ((29, b"mailer 4.2"), (37, b"mailer 4.1 (back)")):
        samples.append(StoredSample(0, first_ms + minute * 60_000, "", text.hex(), text))
    await shard.submit(SaveSamples(samples))


async def filled(client: AsyncClient) -> SampleJobs:
    """Stores jobs in every state, and mutes a group of failures."""
    for queue in ("mail", "images", "idle"):
        await client.create_queue(queue)
    body = json.dumps({"to": "ada@example.org", "tags": ["a", "b"], "retries": 3, "draft": False}).encode()
    await client.enqueue("mail", [Job(body, headers={"pinlater-task": "send"}, priority=1 + n % 2) for n in range(60)])
    await client.enqueue("mail", [Job(body, run_after_ms=SystemClock().now_ms() + 3_600_000)])
    claimed = (await client.dequeue("mail", 7)).jobs
    acks = [Ack(job.descriptor, succeeded=True, token=job.token) for job in claimed[:2]]
    acks += [_failure(job, "smtplib.SMTPException", ERROR) for job in claimed[2:5]]
    await client.ack("mail", [*acks, _failure(claimed[5], "TimeoutError", "no answer in 30 s")])
    [known] = [group for group in (await client.failures("mail")).groups if group.error_type == "TimeoutError"]
    await client.mute_failures("mail", known.name)
    hostile = Job(HOSTILE.encode(), headers={"x": HOSTILE, "long": "y" * 9_000}, custom_status=HOSTILE, priority=2)
    waiting = await client.enqueue("images", [Job(b"before it")])
    stored = await client.enqueue("images", [hostile])
    return SampleJobs(claimed[2].descriptor, stored.descriptors[0], waiting.descriptors[0], claimed[6].descriptor)


def _failure(job: ClaimedJob, error_type: str, error_text: str) -> Ack:
    return Ack(
        job.descriptor, succeeded=False, token=job.token, final=True, error_type=error_type, error_text=error_text
    )
