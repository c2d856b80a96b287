"""Workers that an answer would lack only after a thousand others, and the name of an error of the worker's own."""

from __future__ import annotations

from pinlater.client import Ack, AsyncClient
from pinlater.domain.failures import PROCESS_DIED
from pinlater.server.features.workers.workers import Workers
from pinlater.server.main.core import Core
from pinlater.worker import ProcessDied
from pinlater.worker._attempts.endings import type_name
from tests.console.pages.visitor import PageVisitor


async def test_what_is_not_known_is_said(visitor: PageVisitor, core: Core) -> None:
    registry = core.service.of(Workers).registry
    registry._forgotten.add(48_000, registry._monotonic())
    text = (await visitor.page("/workers")).text
    assert "Incomplete." in text
    assert "gave up workers 48,000 times in the last hour." in text


async def test_a_process_that_died_in_a_worker_makes_its_group_a_suspect(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    await client.enqueue("mail", [b"x", b"y"])
    one, two = (await client.dequeue("mail", 2)).jobs
    await client.ack(
        "mail",
        [
            Ack(
                one.descriptor,
                succeeded=False,
                token=one.token,
                error_type=PROCESS_DIED,
                error_text="killed by SIGSEGV",
            )
        ],
    )
    await client.ack(
        "mail", [Ack(two.descriptor, succeeded=False, token=two.token, error_type="ValueError", error_text="no number")]
    )
    text = (await visitor.page("/workers")).text
    assert "killed by SIGSEGV" in text
    assert "no number" not in text
    assert type_name(ProcessDied) == PROCESS_DIED
