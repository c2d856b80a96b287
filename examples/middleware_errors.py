"""Middleware that reports the last failure of a job to an error tracker such as Sentry."""

from __future__ import annotations

import asyncio

from pinlater import JobContext, Worker, WorkerSettings
from pinlater.worker import Ending, Kind, Middleware


def capture(error: BaseException | None, tags: dict[str, str]) -> None:
    """In place of the function of the tracker: `sentry_sdk.capture_exception(error, tags=tags)`."""
    print(f"{type(error).__name__}: {error}", *(f"{name}={value}" for name, value in tags.items()))


class ErrorReports(Middleware):
    """Reports nothing for an attempt that is retried."""

    def on_failure(self, job: JobContext, ending: Ending, error: BaseException | None) -> None:
        if ending.kind is Kind.GIVEN_UP or job.attempts_remaining <= 1:
            # For a task in a child process there is no exception, only its type and text.
            capture(error or RuntimeError(ending.error_text), {"task": job.task, "attempt": str(job.attempt)})


worker = Worker(middleware=[ErrorReports()], settings=WorkerSettings(retry_delay_ms=0))


@worker.task("bills", attempts=3)
def charge(card: str) -> None:
    if card == "expired":
        raise ValueError("the card has expired")


async def main() -> None:
    """Charges one bill; the other fails three times and is reported once."""
    await charge.enqueue_many_async([charge.job("valid"), charge.job("expired")])
    await worker.run_until_idle()


if __name__ == "__main__":
    asyncio.run(main())
