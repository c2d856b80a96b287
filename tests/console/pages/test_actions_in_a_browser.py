"""Each action of the dashboard, pressed in Chromium at two widths and in both colour schemes."""

from __future__ import annotations

import re

from playwright.async_api import Page, Request, expect

from pinlater.client import Ack
from pinlater.console.pages.routes import ACTIONS
from tests.console.pages.browser import IN_CHROMIUM, BrowsedConsole, Scheme, at_two_widths_in_both_schemes

pytestmark = IN_CHROMIUM


async def told(page: Page, text: str) -> None:
    """What the page says of the last action begins so."""
    await expect(page.get_by_role("status")).to_contain_text(text)


async def confirm(page: Page, label: str, *, row: str = "") -> None:
    """Presses a button that asks first; in the row with that text."""
    within = page.get_by_role("row").filter(has_text=row) if row else page
    await within.locator("summary", has_text=f"{label}…").first.click()
    await within.get_by_role("button", name=label, exact=True).first.click()


async def press_on_overview(page: Page, url: str, queue: str) -> None:
    await page.goto(f"{url}/?filter={queue}")
    await page.get_by_role("button", name=f"Pin {queue}", exact=True).click()
    await page.get_by_role("button", name=f"Unpin {queue}", exact=True).click()
    await expect(page.get_by_role("button", name=f"Pin {queue}", exact=True)).to_be_visible()


async def press_on_queue(page: Page, url: str, queue: str) -> None:
    await page.goto(f"{url}/queues/{queue}")
    await page.get_by_role("button", name="Pause").click()
    await told(page, f"{queue} is paused.")
    await page.get_by_role("button", name="Resume").click()
    await told(page, f"{queue} is resumed.")
    await page.locator("summary", has_text="Settings").click()
    await page.get_by_label("Claim timeout").fill("9m")
    await page.get_by_role("button", name="Save settings").click()
    await told(page, "Changed 1 of")


async def press_on_failed(page: Page, url: str, queue: str) -> None:
    await page.goto(f"{url}/failed?filter={queue}")
    rare = page.get_by_role("row").filter(has_text="OSError: no disk").first
    await rare.get_by_role("button", name="Mute", exact=True).click()
    await told(page, f"The group of failures in {queue} is listed last")
    await rare.get_by_role("button", name="Unmute").click()
    await told(page, f"The group of failures in {queue} is no longer muted")
    await rare.locator("summary", has_text="Delete…").click()
    await expect(rare.locator(".question:visible")).to_contain_text(
        "For a day, the page of bulk changes can bring them back"
    )
    await rare.get_by_role("button", name="Delete", exact=True).click()
    await told(page, f"The servers delete jobs of {queue} in the background")
    run = page.get_by_role("row").filter(has_text=queue).filter(has_text="Delete failed jobs with group")
    await expect(run).to_contain_text("Done")
    await confirm(page, "Undo", row=queue)
    await told(page, f"The servers restore the deleted jobs of {queue} in the background")
    await expect(page.get_by_role("row").filter(has_text=queue).filter(has_text="Restore")).to_contain_text("Done")
    await page.goto(f"{url}/failed?filter={queue}")
    await confirm(page, "Retry all 3")
    await told(page, "Retried 3 of 3 failed jobs")


async def press_on_job(page: Page, url: str, waiting: str) -> None:
    await page.goto(f"{url}/jobs/{waiting}")
    await page.locator("summary", has_text="Reschedule").click()
    await page.get_by_label("Due in, or at").fill("10m")
    await page.get_by_role("button", name="Reschedule").click()
    await told(page, "1 job is due at 2")
    await page.get_by_role("button", name="Run now").click()
    await told(page, "1 job is due now")
    for priority in ("3", "1"):
        moved = waiting.replace(":p1:", f":p{priority}:")
        await page.locator("summary", has_text="Priority").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Priority (1 is the highest)")).to_be_in_viewport(ratio=1)
        await page.get_by_label("Priority (1 is the highest)").fill(priority)
        await page.keyboard.press("Enter")
        await told(page, f"1 job has priority {priority} now: {moved}.")
        await expect(page.get_by_role("heading", level=1)).to_have_text(moved)
    await confirm(page, "Cancel")
    await told(page, "1 job is cancelled")
    await confirm(page, "Delete")
    await told(page, "1 job is deleted")


async def press_on_bulk(page: Page, url: str, queue: str) -> None:
    """Of three jobs it cancels the first, and waits ten seconds for the next."""
    await page.goto(f"{url}/queues/{queue}")
    await page.get_by_role("link", name="Change all due jobs").click()
    await page.get_by_label("What to do").select_option("cancel")
    await page.get_by_label("At most changes a second").fill("0.1")
    await page.get_by_role("button", name="Start in the background").click()
    await told(page, f"The servers cancel jobs of {queue} in the background")
    row = page.get_by_role("row").filter(has_text=queue).filter(has_text="Running")
    await expect(row.get_by_role("progressbar")).to_have_attribute("aria-valuenow", re.compile(r"[1-9]\d?"))
    await expect(row).to_contain_text("done in")
    await confirm(page, "Stop", row=queue)
    await told(page, "stops. It has changed")


async def press_on_undo(page: Page, url: str, queue: str) -> None:
    """Of the two jobs that wait. The page shows by itself that the run has ended."""
    await page.goto(f"{url}/queues/{queue}")
    await page.get_by_role("link", name="Change all due jobs").click()
    await page.get_by_label("What to do").select_option("delete")
    await page.get_by_role("button", name="Start in the background").click()
    await told(page, f"The servers delete jobs of {queue} in the background")
    await expect(page.get_by_role("row").filter(has_text="Delete pending").filter(has_text=queue)).to_contain_text(
        "Undo"
    )
    await confirm(page, "Undo", row=queue)
    await told(page, f"The servers restore the deleted jobs of {queue} in the background")


async def prepare(browsed: BrowsedConsole, queue: str) -> str:
    """A queue with failed jobs of two kinds, and one that waits; the descriptor of that."""
    await browsed.client.create_queue(queue)
    await browsed.client.enqueue(queue, [b"x", b"y", b"z"])
    jobs = (await browsed.client.dequeue(queue, 3)).jobs
    errors = [("ValueError", "boom"), ("ValueError", "boom"), ("OSError", "no disk")]
    await browsed.client.ack(
        queue,
        [
            Ack(job.descriptor, succeeded=False, token=job.token, final=True, error_type=kind, error_text=text)
            for job, (kind, text) in zip(jobs, errors, strict=True)
        ],
    )
    [waiting] = (await browsed.client.enqueue(queue, [b"waits"])).descriptors
    return waiting


@at_two_widths_in_both_schemes
async def test_each_action_does_what_its_button_says(browsed: BrowsedConsole, width: int, scheme: Scheme) -> None:
    queue = f"pressed_{width}_{scheme}"
    waiting = await prepare(browsed, queue)
    pressed: set[str] = set()

    def note(request: Request) -> None:
        if request.method == "POST":
            path = re.sub(r":p\d:", ":p1:", request.url.removeprefix(browsed.url))
            pressed.add(path.replace(waiting, "{descriptor}").replace(queue, "{queue}"))

    async with browsed.tab("/", width, scheme) as page:
        page.on("request", note)
        await press_on_overview(page, browsed.url, queue)
        await press_on_queue(page, browsed.url, queue)
        await press_on_failed(page, browsed.url, queue)
        await press_on_job(page, browsed.url, waiting)
        await browsed.client.enqueue(queue, [b"1", b"2", b"3"])
        await press_on_bulk(page, browsed.url, queue)
        await press_on_undo(page, browsed.url, queue)
    assert pressed == {action.path for action in ACTIONS}
