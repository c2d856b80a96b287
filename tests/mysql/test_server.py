"""`pinlater serve` on MySQL: what no other kind of shard has. The rest: tests/shared_shards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from pinlater.testing.real_server import RealServer
from tests.databases.mysql import MySql8
from tests.shared_shards.serving import metrics, one_job_through, place_of


def test_several_databases_on_a_replica_set_are_shards_of_their_own(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """MYSQL_NUM_DB_PER_QUEUE."""
    place = place_of("mysql", tmp_path, request)
    options = (*place.options, "--set", "mysql.databases_per_server=3")
    with RealServer(tmp_path, *options, store=place.store) as server:
        assert set(metrics(server, "pinlater_shard_healthy")) == {"1", "1d1", "1d2", "2", "2d1", "2d2"}


def test_the_first_login_at_mysql_8_works_without_tls_too(tmp_path: Path, start_mysql8: Callable[..., MySql8]) -> None:
    """caching_sha2_password: the password goes encrypted by the server's key."""
    database = start_mysql8()
    url = f"mysql://{database.user}:{quote(database.password, safe='')}@{database.address}/pinlater_1"
    with RealServer(tmp_path, store=url) as server:
        one_job_through(server.address)
