"""The tasks of `pinlater demo` and `pinlater serve --example`. They send nothing and reach no network.

A job contains how often it fails, so that an operator's retry of a failed job succeeds, as if the cause were gone.
"""

from __future__ import annotations

from asyncio import sleep
from typing import Any, Literal

from pinlater.worker import Task, Worker, constant, current_job

ATTEMPTS = 3
Cause = Literal["server", "template"]


async def send_mail(reader: int, failures: int = 0, cause: Cause = "server", milliseconds: int = 0) -> None:
    """Fails in its first `failures` attempts, because of the mail server or of a template."""
    failing = current_job().attempt <= failures
    text = render("spring_news", reader, missing=failing and cause == "template")
    await deliver(text, milliseconds, refused=failing)


def render(template: str, reader: int, *, missing: bool) -> str:
    """The text of a mail. Raises LookupError if the template is `missing`."""
    if missing:
        raise LookupError(f"there is no template {template!r} before the next release")
    return f"{template} for reader {reader}"


async def deliver(text: str, milliseconds: int, *, refused: bool) -> None:
    """Takes as long as a mail server would. Raises ConnectionRefusedError if the server `refused`."""
    await sleep(milliseconds / 1000)
    if refused:
        raise ConnectionRefusedError(f"mail.example.org:25 refused {len(text)} bytes while it restarts")


async def make_report(month: str, seconds: int) -> None:
    """Shows its progress each second."""
    for second in range(seconds):
        await current_job().progress_async(second / seconds, f"chapter {second + 1} of {seconds} of {month}")
        await sleep(1)


def mail_task(worker: Worker, queue: str, *, delay: str) -> Task[..., Any]:
    """Registers `send_mail` as a task of this queue. `delay`: between attempts."""
    return worker.task(queue, attempts=ATTEMPTS, retry=constant(delay), log_level="debug")(send_mail)
