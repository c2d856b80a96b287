"""Takes the pictures of the dashboard for README and docs, docs/_static/console-*.png, of the pages that the tests open in a browser.
`make picture` calls it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from tests.console.pages.browser import Scheme, browsed_console

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "docs/_static"


class Picture(NamedTuple):
    """A page; `{failed}` is a failed job. `height`: of the part that is shown."""

    name: str
    path: str
    width: int
    height: int
    scheme: Scheme


PICTURES = (
    Picture("overview", "/", 1280, 420, "light"),
    Picture("queue", "/queues/mail", 1280, 860, "light"),
    Picture("failed", "/failed", 1280, 560, "dark"),
    Picture("job", "/jobs/{failed}", 1280, 660, "light"),
)


async def draw() -> None:
    """Takes all pictures, one after the other."""
    async with browsed_console() as console:
        for picture in PICTURES:
            async with console.tab(
                picture.path.format(failed=console.jobs.failed), picture.width, picture.scheme
            ) as page:
                file = FOLDER / f"console-{picture.name}.png"
                shown = {"x": 0, "y": 0, "width": picture.width, "height": picture.height}
                await page.screenshot(path=file, clip=shown, full_page=True)
                print(file.relative_to(REPOSITORY))


if __name__ == "__main__":
    asyncio.run(draw())
