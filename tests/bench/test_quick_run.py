"""The whole benchmark, one iteration of everything, so that it never rots. No figure is judged here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import ROWS
from bench.results import read_results
from tests.databases.mariadb import MariaDb
from tests.databases.redis import RedisServer
from tests.databases.server_process import ServerMissing

SERVERS: dict[str, type[MariaDb | RedisServer]] = {"mysql": MariaDb, "redis": RedisServer}


@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    "store", [store if store == "sqlite" else pytest.param(store, marks=pytest.mark.thorough) for store in ROWS]
)
def test_one_iteration_of_everything_measures_every_row(tmp_path: Path, store: str) -> None:
    _need(SERVERS.get(store))
    output = tmp_path / "quick.json"
    command = [sys.executable, "-m", "bench"]
    run = subprocess.run(
        [*command, "--quick", "--store", store, "--dir", str(tmp_path / "work"), "--output", str(output)],
        capture_output=True,
        text=True,
        check=False,
        timeout=460,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    results = read_results(output)
    assert results.machine["store"] == store
    assert [row.name for row in results.rows] == list(ROWS[store])
    for row in results.rows:
        assert row.runs, row.name
        for goal in row.goals:
            assert goal.measure in row.figures, f"{row.name} has no {goal.measure}"
    compared = subprocess.run(
        [*command, "compare", str(output), str(output), "--strict"], capture_output=True, text=True, check=False
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr


def _need(server: type[MariaDb | RedisServer] | None) -> None:
    if server is None:
        return
    try:
        server.command()
    except ServerMissing as missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(missing))
