"""Chromium before a proxy: forms below a path, and the pages that say why the console refuses a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.console.pages.browser import (
    NEEDS_CHROMIUM,
    OPTIONS,
    PICTURES,
    PROGRAM,
    Scheme,
    at_two_widths_in_both_schemes,
    defects,
)
from tests.console.proxies.conftest import ServedConsoles
from tests.console.proxies.proxy_process import NAME, Kind, documented, running

pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    NEEDS_CHROMIUM,
]
# Proxies before a console that has no settings, for a name without TLS: below a path, and as many people have them.
HOST_PASSED_ON = (
    "server { listen 443; location /tools/ { proxy_pass http://127.0.0.1:9998/; proxy_set_header Host $http_host; } }"
)
BARE = "server { listen 443; location / { proxy_pass http://127.0.0.1:9998; } }"


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        options = [*OPTIONS, f"--host-resolver-rules=MAP {NAME} 127.0.0.1"]
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=options)
        yield browser
        await browser.close()


@asynccontextmanager
async def tab(browser: Browser, width: int = 1280, scheme: Scheme = "light") -> AsyncIterator[Page]:
    """Fails if the page logs an error, or asks for what is not there."""
    viewport = {"width": width, "height": 900}
    context = await browser.new_context(ignore_https_errors=True, viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
    problems: list[str] = []
    page = await context.new_page()
    page.set_default_timeout(30_000)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("response", lambda one: problems.append(one.url) if one.status in (404, 500, 502) else None)
    yield page
    await context.close()
    assert problems == []


@pytest.mark.parametrize("kind", ["nginx", "apache"])
async def test_a_form_below_a_path_does_what_it_says(served: ServedConsoles, browser: Browser, kind: Kind) -> None:
    with running(kind, documented(kind, "/jobs"), served.trusting) as port:
        async with tab(browser) as page:
            await page.goto(f"https://{NAME}:{port}/jobs/queues/mail")
            await page.get_by_label("Token").fill(served.token)
            await page.get_by_role("button", name="Log in").click()
            await expect(page).to_have_url(f"https://{NAME}:{port}/jobs/queues/mail")
            await page.get_by_role("button", name="Pause").or_(page.get_by_role("button", name="Resume")).click()
            await expect(page.get_by_role("status")).to_contain_text("mail")
            first = await page.locator("#as-of").text_content()
            await expect(page.locator("#as-of")).not_to_have_text(first or "")  # it updates itself
            await page.get_by_role("link", name="Overview").click()
            await page.get_by_role("button", name="Pin").first.click()
            await page.get_by_placeholder("Queue or job").fill("mail")
            await page.keyboard.press("Enter")
            await expect(page).to_have_url(f"https://{NAME}:{port}/jobs/queues/mail")


@at_two_widths_in_both_schemes
async def test_a_refusal_is_a_page_without_defects_that_says_what_to_change(
    served: ServedConsoles, browser: Browser, width: int, scheme: Scheme
) -> None:
    found = []
    async with tab(browser, width, scheme) as page:
        for text, name, setting in (
            (HOST_PASSED_ON, "host", "console_names"),
            (BARE, "origin", "console_trusted_proxies"),
        ):
            with running("nginx", text, served.bare) as port:
                if name == "host":
                    await page.goto(f"http://{NAME}:{port}/tools/queues/mail")
                else:
                    await page.goto(f"http://{NAME}:{port}/login")
                    await page.get_by_label("Token").fill(served.token)
                    await page.get_by_role("button", name="Log in").click()
                await expect(page.get_by_role("alert")).to_contain_text(setting)
                found += await defects(page)
                assert await page.evaluate("document.styleSheets.length") == 1
                await page.screenshot(path=PICTURES / f"refused-{name}-{width}-{scheme}.png", full_page=True)
    assert found == []
