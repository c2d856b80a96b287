"""The pages in Chromium: at two widths, in both colour schemes, with and without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from playwright.async_api import Page, expect

from pinlater.client import Ack
from pinlater.domain.access import Role
from tests.console.pages.browser import (
    IN_CHROMIUM,
    PICTURES,
    BrowsedConsole,
    Scheme,
    at_two_widths_in_both_schemes,
    defects,
)

pytestmark = IN_CHROMIUM


@at_two_widths_in_both_schemes
async def test_no_page_has_a_serious_defect_of_access_or_scrolls_sideways(
    browsed: BrowsedConsole, width: int, scheme: Scheme
) -> None:
    found = []
    async with browsed.tab("/", width, scheme) as page:
        for path in browsed.paths:
            await page.goto(browsed.url + path)
            found += await defects(page)
            await browsed.save_picture(page, width, scheme)
    assert found == []


@at_two_widths_in_both_schemes
async def test_open_questions_and_panels_have_no_defect_of_access_and_fit_the_screen(
    browsed: BrowsedConsole, width: int, scheme: Scheme
) -> None:
    """What is open together has places of its own."""
    waiting, failed = f"/jobs/{browsed.jobs.waiting}", f"/jobs/{browsed.jobs.failed}"
    opened: dict[str, tuple[str, Sequence[str]]] = {
        "keys": ("/", []),
        "delete-of-group": ("/failed", [".groups .confirm summary:has-text('Delete')"]),
        "retry-of-queue": ("/failed", [".group .confirm summary"]),
        "panels": ("/queues/mail", ["text=Settings", "text=Priorities", ".more summary"]),
        "reschedule": (waiting, ["summary:has-text('Reschedule')"]),
        "priority": (waiting, ["summary:has-text('riority')"]),
        "delete-of-job": (waiting, ["summary:has-text('Delete')"]),
        "error-of-attempt": (failed, [".line summary"]),
    }
    found = []
    async with browsed.tab("/", width, scheme) as page:
        for name, (path, places) in opened.items():
            await page.goto(browsed.url + path)
            if name == "keys":
                await page.keyboard.press("?")
            for place in places:
                await page.locator(place).first.click()
            assert await page.locator("details[open], dialog[open]").count() >= max(1, len(places)), name
            found += await defects(page)
            await page.screenshot(path=PICTURES / f"open-{name}-{width}-{scheme}.png", full_page=True)
    assert found == []


async def test_hostile_texts_run_nothing(browsed: BrowsedConsole) -> None:
    for path in (f"/jobs/{browsed.jobs.hostile}?view=text", f"/jobs/{browsed.jobs.hostile}", "/queues/images"):
        async with browsed.tab(path) as page:
            await expect(page.locator("main")).to_contain_text("<script>document.title")
            assert "owned" not in await page.title()


async def test_the_policy_stops_inline_scripts_and_frames(browsed: BrowsedConsole) -> None:
    page = await browsed.browser.new_page()
    await page.goto(browsed.url)
    blocked = await page.evaluate(
        """async () => {
             const seen = [];
             document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
             const script = document.createElement("script"), frame = document.createElement("iframe");
             script.textContent = "document.title = 'owned'";
             frame.src = "/failed";
             document.body.append(script, frame);
             while (seen.length < 2) await new Promise((done) => setTimeout(done, 20));
             return seen;
           }"""
    )
    assert set(blocked) == {"script-src-elem", "frame-src"}
    assert await page.title() == "Overview · PinLater"
    await page.close()


async def test_a_newcomer_finds_a_failed_job_and_retries_it(browsed: BrowsedConsole) -> None:
    async with browsed.tab("/") as page:
        await page.get_by_role("link", name="Failed", exact=True).first.click()
        group = page.locator(".groups [data-row]").first
        await expect(group).to_contain_text("smtplib.SMTPException: Connection closed")
        row = page.locator(".jobs [data-row]").first
        await row.get_by_role("button", name="Retry").click()
        await expect(page.get_by_role("status")).to_contain_text("Retried 1 job; it is due now")
        await expect(page).not_to_have_url(re.compile("done="))
        await page.get_by_role("link", name="Show the job").click()
        await expect(page.locator("#state")).to_have_text("pending")
        await expect(page.locator("#error")).to_contain_text("Last error")


async def test_a_page_updates_itself_and_keeps_what_is_open(browsed: BrowsedConsole) -> None:
    async with browsed.tab("/queues/images") as page:
        await page.locator("summary", has_text="Settings").click()
        await page.get_by_label("Claim timeout").fill("9m")
        await browsed.client.pause_queue("images")
        await expect(page.get_by_role("button", name="Resume")).to_be_visible()
        assert await page.get_by_label("Claim timeout").input_value() == "9m"
        await page.get_by_role("button", name="Save settings").click()
        await expect(page.get_by_role("status")).to_contain_text("Changed 1 of 12 settings. Claim timeout: 9m.")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.get_by_role("status")).to_have_text("images is resumed.")


async def test_an_open_page_of_a_job_shows_that_it_fails_and_offers_other_commands(browsed: BrowsedConsole) -> None:
    await browsed.client.create_queue("watched")
    await browsed.client.enqueue("watched", [b"x"])
    [job] = (await browsed.client.dequeue("watched", 1)).jobs
    async with browsed.tab(f"/jobs/{job.descriptor}") as page:
        await expect(page.get_by_text(f"pinlater job cancel {job.descriptor}")).to_be_visible()
        failed = Ack(job.descriptor, False, token=job.token, final=True, error_type="OSError", error_text="no disk")
        await browsed.client.ack("watched", [failed])
        await expect(page.locator("#error")).to_contain_text("no disk")
        await expect(page.get_by_text(f"pinlater job run-now {job.descriptor}")).to_be_visible()
        await expect(page.get_by_text(f"pinlater job cancel {job.descriptor}")).to_have_count(0)


async def test_the_copy_button_copies_the_command_beside_it(browsed: BrowsedConsole) -> None:
    name = (await browsed.client.enqueue("idle", [b"copied"])).descriptors[0]
    async with browsed.tab(f"/jobs/{name}") as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=browsed.url)
        row = page.locator(".commands > div").filter(has_text="Explain")
        await row.get_by_role("button", name="Copy").click()
        await expect(row.get_by_role("button")).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == f"pinlater job explain {name}"
    async with browsed.tab(f"/jobs/{name}", script=False) as page:
        await expect(page.get_by_text(f"pinlater job explain {name}")).to_be_visible()
        await expect(page.get_by_role("button", name="Copy")).to_have_count(0)


async def test_a_hidden_tab_asks_for_nothing(browsed: BrowsedConsole) -> None:
    async with browsed.tab("/") as page:
        await page.wait_for_load_state("networkidle")  # the icon comes late
        await page.evaluate(
            """() => { Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
                       document.dispatchEvent(new Event("visibilitychange")); }"""
        )
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.wait_for_timeout(2_500)
        assert asked == []
        async with page.expect_request("**/"):
            await page.evaluate(
                """() => { delete document.hidden; document.dispatchEvent(new Event("visibilitychange")); }"""
            )


async def test_rows_and_the_filter_are_reached_by_keys(browsed: BrowsedConsole) -> None:
    async with browsed.tab("/?sort=name") as page:
        await page.keyboard.press("/")
        await expect(page.get_by_label("Filter queues by name")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await page.keyboard.press("k")
        await expect(page.get_by_role("link", name="idle")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="idle")).to_be_visible()


async def test_a_failed_job_is_retried_by_keys_alone(browsed: BrowsedConsole) -> None:
    await browsed.client.create_queue("keyed")
    await browsed.client.enqueue("keyed", [b"x"])
    [job] = (await browsed.client.dequeue("keyed", 1)).jobs
    await browsed.client.ack("keyed", [Ack(job.descriptor, succeeded=False, token=job.token, final=True)])
    async with browsed.tab("/") as page:
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.keyboard.press("2")  # not while the keys are shown
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
        await page.keyboard.press("2")
        await expect(page.get_by_role("heading", name="Failed jobs", exact=True)).to_be_visible()
        await page.goto(f"{browsed.url}/queues/keyed")
        shown = page.locator("#states a[aria-current=true]")
        for tab in ("Scheduled", "Running", "Failed", "Succeeded"):
            await page.keyboard.press("]")
            await expect(shown).to_contain_text(tab)
        await page.keyboard.press("[")
        await expect(shown).to_contain_text("Failed")
        await page.keyboard.press("j")
        await page.keyboard.press("a")
        await expect(page.get_by_role("button", name="Retry", exact=True)).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status")).to_contain_text("Retried 1 job; it is due now")


async def test_the_choice_of_a_colour_scheme_is_kept(browsed: BrowsedConsole) -> None:
    async with browsed.tab("/") as page:
        await page.get_by_role("button", name="Dark").click()
        await page.goto(f"{browsed.url}/failed")
        await expect(page.locator("body")).to_have_css("background-color", "rgb(19, 22, 25)")


async def test_without_javascript_actions_and_questions_work(browsed: BrowsedConsole) -> None:
    name = (await browsed.client.enqueue("idle", [b"z"])).descriptors[0]
    async with browsed.tab(f"/jobs/{name}", 390, script=False) as page:
        await page.locator("summary", has_text="Delete").click()
        await page.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("status")).to_have_text(f"1 job is deleted: {name}.")


async def log_in(page: Page, token: str) -> None:
    """Fills the field and submits it."""
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Log in").click()


@at_two_widths_in_both_schemes
async def test_log_in_and_refusal_pages_have_no_defect_of_access(
    browsed: BrowsedConsole, width: int, scheme: Scheme
) -> None:
    assert browsed.tokens is not None
    found: list[tuple[str, ...]] = []

    async def check(page: Page, name: str) -> None:
        found.extend(await defects(page))
        await page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png", full_page=True)

    async with browsed.tab("/queues/mail", width, scheme, guarded=True) as page:
        await check(page, "login")
        await log_in(page, "pinlater_guess")
        await expect(page.get_by_role("alert")).to_contain_text("does not know the token")
        await check(page, "login-refused")
        await log_in(page, browsed.tokens.make(f"billing-{width}-{scheme}", Role.PRODUCE))
        await expect(page.get_by_role("alert")).to_contain_text("needs the role read")
        await check(page, "role-refused")
        await page.locator("main").get_by_role("button", name="Log out").click()
        await log_in(page, browsed.tokens.make(f"wall-{width}-{scheme}", Role.READ, queues=["mail*", "images"]))
        await page.goto(f"{browsed.guarded_url}/queues/mail?tab=failed")
        await page.locator("summary", has_text="wall").click()
        await expect(page.get_by_role("button", name="Log out")).to_be_visible()
        await check(page, "read-only")
        for masked, told in ((browsed.jobs.failed, "Parts of the body are"), (browsed.jobs.waiting, "The body is")):
            await page.goto(f"{browsed.guarded_url}/jobs/{masked}")
            await expect(page.locator("#body")).to_contain_text(f"{told} masked for your roles.")
            await check(page, f"masked-{masked.partition(':')[0]}")
    assert found == []


@pytest.mark.parametrize("script", [True, False], ids=["with JavaScript", "without"])
async def test_a_person_logs_in_acts_and_logs_out(browsed: BrowsedConsole, script: bool) -> None:
    assert browsed.tokens is not None
    token = browsed.tokens.make(f"ops-{script}", Role.OPERATE)
    async with browsed.tab("/queues/idle", 390, script=script, guarded=True) as page:
        await log_in(page, token)
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_role("status")).to_contain_text("idle is paused")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.get_by_role("status")).to_contain_text("idle is resumed")
        await page.locator("summary", has_text=f"ops-{script}").click()
        await page.get_by_role("button", name="Log out").click()
        await expect(page.get_by_role("status")).to_have_text("You are logged out.")
        await page.go_back()
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


async def test_an_open_page_asks_for_a_token_when_its_own_is_revoked(browsed: BrowsedConsole) -> None:
    assert browsed.tokens is not None
    async with browsed.tab("/queues/mail", guarded=True) as page:
        await log_in(page, browsed.tokens.make("leaver", Role.READ))
        await expect(page.get_by_role("heading", name="mail")).to_be_visible()
        browsed.tokens.revoke("leaver")
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


async def test_another_site_may_link_to_a_page_and_can_not_act_with_the_session(browsed: BrowsedConsole) -> None:
    assert browsed.tokens is not None
    context = await browsed.browser.new_context()
    page = await context.new_page()
    await page.goto(browsed.guarded_url)
    await log_in(page, browsed.tokens.make("visitor", Role.OPERATE))
    url = f"{browsed.guarded_url}/queues/idle"
    foreign = f'<a href="{url}">link</a><form method="post" action="{url}/pause"><button>act</button></form>'
    await context.route("http://evil.example/", lambda route: route.fulfill(body=foreign, content_type="text/html"))
    await page.goto("http://evil.example/")
    await page.get_by_role("link").click()
    await expect(page.get_by_role("heading", name="idle")).to_be_visible()
    await page.goto("http://evil.example/")
    await page.get_by_role("button").click()
    await expect(page.locator("body")).to_contain_text("says that a page of")
    assert not (await browsed.client.queue_config("idle")).paused
    await context.close()
