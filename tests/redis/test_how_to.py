"""What docs/how-to/run-on-redis.md tells an administrator to do at Redis is done here."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from redis.exceptions import ResponseError

from pinlater.client import Ack, Client, Job
from pinlater.testing.real_server import RealServer
from tests.databases.redis import RedisServer
from tests.databases.redis_users import WITH_USERS, as_admin
from tests.house.snippets import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-on-redis.md"


def block_with(word: str) -> str:
    (found,) = (block.text for block in blocks(PAGE.read_text()) if word in block.text and block.language == "none")
    return found


def test_the_pages_settings_and_user_are_enough(start_redis: Callable[..., RedisServer], tmp_path: Path) -> None:
    """A Redis as the page's redis.conf makes it, a user as its command makes it, and nothing more; nothing to warn of."""
    lines = [line for line in block_with("appendonly").splitlines() if not line.startswith("#")]
    server = start_redis(**WITH_USERS, **dict(shlex.split(line) for line in lines))
    command = shlex.split(block_with("ACL SETUSER").replace("SETUSER pinlater ", "SETUSER page "))
    with as_admin(server) as admin:
        admin.execute_command(*command)
    url = f"redis://page:a-long-password@{server.address}/0"
    with RealServer(tmp_path, store=url) as running:
        with Client(running.address) as client:
            client.create_queue("emails")
            client.enqueue("emails", [Job(b"x"), Job(b"y")])
            done, failed = client.dequeue("emails", limit=2).jobs
            assert client.ack("emails", [Ack(done.descriptor, token=done.token)])[0].outcome.name == "APPLIED"
            client.ack("emails", [Ack(failed.descriptor, succeeded=False, token=failed.token)])
            assert client.queue_stats("emails")[0].total("succeeded") == 1
        assert [line for line in running.said if "pinlater.server.storage.redis" in line] == []


def test_that_user_can_not_access_keys_of_other_programs(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis(**WITH_USERS)
    command = shlex.split(block_with("ACL SETUSER").replace("SETUSER pinlater ", "SETUSER page "))
    with as_admin(server) as admin:
        admin.execute_command(*command)
    with redis.Redis(server.host, server.port, username="page", password="a-long-password") as page:
        assert page.get("pinlater{1}:x") is None
        for refused in (
            ["GET", "other"],
            ["SET", "other", "x"],
            ["FLUSHALL"],
            ["CONFIG", "SET", "save", ""],
            ["KEYS", "*"],
            ["EVAL", "return redis.call('GET', 'other')", 0],
            ["ACL", "LIST"],
            ["REPLICAOF", "NO", "ONE"],
            ["SHUTDOWN"],
        ):
            with pytest.raises(ResponseError, match=r"(?i)permissions|can't run|can't access"):
                page.execute_command(*refused)
