"""When acks are flushed that no claim takes along: on an event loop whose time the test moves on, so that five milliseconds are exact."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pinlater.client import AsyncClient, ClaimedJob
from pinlater.wire.generated import structs as types
from pinlater.worker import Worker, WorkerSettings
from tests.client.scripted import AskedServer, Script, lost


def tokens(acks: Any) -> str:
    return "".join(ack.token for ack in acks.succeeded)


def applied(acks: Any) -> list[types.AckResult]:
    return [types.AckResult(ack.descriptor, 0) for ack in acks.succeeded]


class SteeredLoop(asyncio.SelectorEventLoop):
    """Its time stands still until a test moves it on."""

    now_ms = 0

    def time(self) -> float:
        return self.now_ms / 1000


class Told:
    """A worker that has claimed a job for each letter and waits for more. Notes when it tells which of them have ended, and whether by a
    claim. Steps: `a`: job a ends; `all`: all end; `4`: four milliseconds pass; `claim`: the claim under way gets another job; `hold` and
    `answer`: the server keeps its answers to acks back, and gives them; `away` and `back`: acks get no answer."""

    def __init__(self, loop: SteeredLoop, jobs: str) -> None:
        self.loop = loop
        self.jobs = (jobs, "z")
        self.told: list[tuple[int, str]] = []
        self.ends = {name: asyncio.Event() for name in "".join(self.jobs)}
        self.claim, self.answers, self.away = asyncio.Event(), asyncio.Event(), False
        self.answers.set()
        self.claims = 0
        self.script = Script(
            getServerInfo=lambda _: types.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1),
            dequeueJobs=self._dequeue,
            ackJobs=self._ack,
        )
        settings = WorkerSettings(auto_create=False, prefetch_max=0, concurrency=len(jobs) + 1)
        self.client = AsyncClient("a", connect=self.script.connect)
        self.worker = Worker(self.client, settings=settings)

        @self.worker.task("q")
        async def work(job: ClaimedJob) -> None:
            await self.ends[job.token].wait()

    async def _dequeue(self, asked: AskedServer) -> types.DequeueResponse:
        acks = asked.request.acks
        if acks is not None:
            self.told.append((self.loop.now_ms, f"claim {tokens(acks)}"))
        if self.claims:
            await self.claim.wait()
            self.claim.clear()
        jobs = {f"q:s1:p1:{name}": types.DequeueMetadata(token=name) for name in self.jobs[self.claims]}
        self.claims += 1
        return types.DequeueResponse(dict.fromkeys(jobs, b""), jobs, ack_outcomes=acks and applied(acks))

    async def _ack(self, asked: AskedServer) -> Any:
        self.told.append((self.loop.now_ms, tokens(asked.request)))
        await self.answers.wait()
        return lost() if self.away else applied(asked.request)

    async def tell(self, steps: str) -> list[tuple[int, str]]:
        await self.client.open()
        working = asyncio.create_task(self.worker.run_async())
        end_s = time.monotonic() + 30
        while len(self.script.requests_of("dequeueJobs")) < 2:
            assert time.monotonic() < end_s
            await asyncio.sleep(0)
        for step in steps.split():
            await self._take(step)
        self.worker.request_stop()
        told = list(self.told)
        self.away = False
        self.answers.set()
        self._end_all()
        while not working.done():
            await self._pass(1)
        await working
        await self.client.close()
        return told

    def _end_all(self) -> None:
        for end in self.ends.values():
            end.set()

    async def _take(self, step: str) -> None:
        if step.isdigit():
            for _ in range(int(step)):
                await self._pass(1)
        elif step in self.ends:
            self.ends[step].set()
        elif step == "all":
            self._end_all()
        elif step == "claim":
            self.claim.set()
        elif step in ("hold", "answer"):
            self.answers.clear() if step == "hold" else self.answers.set()
        else:
            self.away = step == "away"
        await self._pass(0)

    async def _pass(self, ms: int) -> None:
        self.loop.now_ms += ms
        for _ in range(30):
            await asyncio.sleep(0)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteeredLoop]:
    monkeypatch.setattr(random, "random", lambda: 0.5)
    loop = SteeredLoop()
    yield loop
    loop.close()


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("a 4 b 1 c 5", [(5, "ab"), (10, "c")]),
        ("a 3 claim b 4", [(3, "claim a")]),
        ("a 3 claim b 5", [(3, "claim a"), (8, "b")]),  # its own five begin with it
        ("hold a 5 b 20 answer", [(5, "a"), (25, "b")]),  # the wait of an ack includes the flush before it
        ("away a 5 1 back 150", [(5, "a"), (80, "a")]),
    ],
)
def test_an_ack_that_no_claim_takes_is_flushed_after_five_milliseconds_with_later_ones(
    loop: SteeredLoop, steps: str, told: list[tuple[int, str]]
) -> None:
    assert loop.run_until_complete(Told(loop, "abc").tell(steps)) == told


@pytest.mark.parametrize(("steps", "sizes"), [("hold all 9", [1_000]), ("hold all 9 answer", [1_000, 10])])
def test_at_most_a_thousand_acks_are_flushed_in_a_request(loop: SteeredLoop, steps: str, sizes: list[int]) -> None:
    jobs = "".join(chr(1_000 + number) for number in range(1_010))
    told = loop.run_until_complete(Told(loop, jobs).tell(steps))
    assert [len(names) for _, names in told] == sizes
