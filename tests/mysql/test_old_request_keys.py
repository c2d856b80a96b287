"""A request key whose time was over is used again, by way of two servers at once."""

from __future__ import annotations

import asyncio

from pinlater.server.storage.commands import InsertJobs
from pinlater.server.storage.request_keys import REQUEST_KEY_KEPT_MS
from pinlater.server.storage.values import Inserted, InsertRequest
from tests.mysql.proxied_mysql import ProxiedMysql
from tests.shared_shards.proxied_database import QUEUE

_TRIES = 20


async def test_two_servers_that_get_a_repeat_under_an_old_key_store_it_once(database: ProxiedMysql) -> None:
    """What the key meant before is forgotten by one of them; the other one must not forget what the first has just stored."""
    one, other = await database.desk(direct=True), await database.desk(direct=True)
    for number in range(_TRIES):
        key = f"daily-{number}"
        await one.request(InsertRequest(QUEUE, [one.job(b"old")], key, b"same"))
        later = one.now + REQUEST_KEY_KEPT_MS + 1_000
        answers = await asyncio.gather(
            *(
                desk.shard.submit(InsertJobs([InsertRequest(QUEUE, [desk.job(b"new")], key, b"same")], later))
                for desk in (one, other)
            )
        )
        ids = set()
        for [answer] in answers:
            assert isinstance(answer, Inserted)
            ids.add(tuple(answer.ids))
        assert len(ids) == 1, f"stored twice at try {number}: {answers}"
