"""A FastAPI application that enqueues jobs and answers at once; a worker does the work.

pinlater worker tasks:worker      in one terminal
uvicorn app:app                   in another
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request, Response
from tasks import Signup, report, welcome

from pinlater import AsyncClient
from pinlater.client.errors import WorldError


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """A client for reading jobs; tasks have their own client for enqueues."""
    async with AsyncClient() as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(WorldError)
async def unavailable(request: Request, error: WorldError) -> Response:
    """The job service is down or full: the visitor may try again."""
    return Response(str(error), status_code=503, headers={"Retry-After": str((error.retry_after_ms or 1_000) // 1_000)})


@app.post("/signups", status_code=202)
async def sign_up(signup: Signup) -> dict[str, str | bool]:
    """In a coroutine: await. The job is on disk before the visitor gets an answer.

    Until it has finished, a second click enqueues nothing.
    """
    placed = await welcome.using(unique=signup.mail).enqueue_async(signup)
    return {"job": placed.descriptor, "new": not placed.existing}


@app.post("/reports/{month}", status_code=202)
def start_report(month: str) -> dict[str, str]:
    """In a plain function, which FastAPI runs in a thread: no await."""
    return {"job": report.enqueue(month).descriptor}


@app.get("/jobs/{descriptor}")
async def state_of(descriptor: str, request: Request) -> dict[str, str]:
    """The state of the work."""
    client: AsyncClient = request.app.state.client
    info = (await client.lookup([descriptor])).get(descriptor)
    if info is None:
        raise HTTPException(404)
    return {"state": info.state.name, "error": info.error_text}
