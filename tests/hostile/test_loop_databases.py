"""On databases as on SQLite: large requests block the event loop for no longer than 50 ms of CPU time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bench.servers import PinLaterServer, serve
from pinlater.wire.generated import structs as types
from tests.databases.redis_users import url_of
from tests.hostile.callers import HostileCaller, no_long_turn, up_to_thrice
from tests.hostile.test_loop import DESCRIPTORS_MAX, JOBS_MAX, LARGE, acks, claimed, filled

pytestmark = pytest.mark.crash


def mysql_store(request: pytest.FixtureRequest) -> tuple[str, ...]:
    database = request.getfixturevalue("mariadb")
    prefix = request.getfixturevalue("mariadb_prefix")
    user = f"{database.user}:{quote(database.password, safe='')}"
    return ("--store", f"mysql://{user}@{database.address}/{prefix}jobs")


def redis_store(request: pytest.FixtureRequest) -> tuple[str, ...]:
    url = url_of(request.getfixturevalue("redis_with_users"))
    return ("--store", url, "--set", f"redis.key_prefix={request.getfixturevalue('redis_prefix')}")


@pytest.fixture(params=[mysql_store, redis_store], ids=["mysql", "redis"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PinLaterServer]:
    options = request.param(request)
    with serve(*options, "--set", "telemetry.loop_lag_interval_ms=5", log=tmp_path / "log") as server:
        with HostileCaller(server) as caller:
            assert caller.call("createQueue", name="q").exception is None
        yield server


@pytest.mark.timeout(300)
@up_to_thrice
def test_requests_at_their_bounds_block_the_loop_of_a_server_on_a_database_for_no_longer_than_50_ms(
    server: PinLaterServer,
) -> None:
    with HostileCaller(server) as caller:

        def ask(method: str, **arguments: Any) -> Any:
            with no_long_turn(server, method):
                reply = caller.call(method, **arguments)
            assert (reply.exception, reply.application_error) == (None, None), method
            return reply.value

        descriptors = filled(caller, DESCRIPTORS_MAX // JOBS_MAX, JOBS_MAX, 10)
        for each in LARGE:
            with no_long_turn(server, each.__name__):
                assert each(caller, descriptors)
        ask("lookupJobs", request=types.LookupRequest(descriptors, True))
        claims = claimed(caller, JOBS_MAX)
        ask("heartbeatClaims", request=types.ClaimsRequest("q", claims))
        ask("ackDequeuedJobs", request=acks(claims, succeeded=False, per_item_errors=False))
        claims = claimed(caller, JOBS_MAX)
        ask("ackDequeuedJobs", request=acks(claims, succeeded=True, per_item_errors=False))
        ask("releaseJobs", request=types.ReleaseRequest("q", claimed(caller, JOBS_MAX)))
        ask("cancelJobs", queue="q", descriptors=descriptors)
        ask("deleteJobsByDescriptor", queue="q", descriptors=descriptors)
