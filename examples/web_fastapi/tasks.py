"""The tasks of the application, and the worker that runs them: `pinlater worker tasks:worker`."""

from __future__ import annotations

from pydantic import BaseModel

from pinlater import Worker
from pinlater.worker import exponential

worker = Worker(retry=exponential(1, max=600))


class Signup(BaseModel):
    """The content of a request and the argument of the task: FastAPI and the worker both check it."""

    mail: str
    name: str = ""


@worker.task("mails", attempts=8, time_limit=60)
async def welcome(signup: Signup) -> None:
    """A slow mail server delays no visitor."""
    print("welcome", signup.name, flush=True)


@worker.task("reports", process=True)
def report(month: str) -> None:
    """Work for a processor runs in a child process, not on an event loop."""
    print("report of", month, flush=True)
