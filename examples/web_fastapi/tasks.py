"""The tasks of the application, and the worker that runs them: `pinlater worker tasks:worker`."""

from __future__ import annotations

from pydantic import BaseModel

from pinlater import Worker
from pinlater.worker import exponential

worker = Worker(retry=exponential(1, max=600))


class Signup(BaseModel):
    """What a visitor sends is what the task takes: checked once at the door and once more in the worker."""

    mail: str
    name: str = ""


@worker.handler("mails", attempts=8, time_limit=60)
async def welcome(signup: Signup) -> None:
    """Mail servers are slow and sometimes away: not the visitor's problem."""
    print("welcome", signup.name, flush=True)


@worker.handler("reports", process=True)
def report(month: str) -> None:
    """Work for a processor belongs neither on the web server nor on the worker's event loop."""
    print("report of", month, flush=True)
