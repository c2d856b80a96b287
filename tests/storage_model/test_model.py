"""Runs the machines. `MODEL_EXAMPLES=1000 pytest tests/storage_model` for a long run; a failure prints how to see it again.

A short run tries the same examples each time, so that a red build speaks of a change and not of luck; a long one tries new ones. Only a
long run looks for the shortest example of a failure: that takes minutes, in which a short run would be taken for hung and be
cut off by its timeout without having said what failed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.stores import SHARED, STORES, make_store, needs_server
from tests.databases.fixtures import OTHER_REDIS_SERVERS
from tests.storage_model.machine import QueuesMachine, ServersMachine, ShardMachine

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "50"))
LONG = EXAMPLES > 100
EMBEDDED = {"memory", "sqlite"}


def engines(kinds: Iterable[str]) -> list[ParameterSet]:
    """One version of each engine in `make test`; MySQL 8, which has the code of MariaDB, in `make test-all`."""
    return [
        pytest.param(kind, marks=[pytest.mark.thorough] if kind == "mysql8" else [])
        for kind in kinds
        if kind not in OTHER_REDIS_SERVERS
    ]


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("kind", engines(STORES))
def test_a_store_answers_as_the_model_does(kind: str, request: pytest.FixtureRequest) -> None:
    run(ShardMachine, kind, request)


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("kind", engines(SHARED))
def test_several_servers_on_one_store_answer_as_the_model_does(kind: str, request: pytest.FixtureRequest) -> None:
    """Through whichever of them queues are made, deleted and made again, jobs are worked on, and sweeps are made."""
    run(ServersMachine, kind, request)


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("kind", engines(STORES))
def test_queues_begin_and_end_as_those_of_the_model_do(kind: str, request: pytest.FixtureRequest) -> None:
    """By clocks that differ, and by calls that come late."""
    run(QueuesMachine, kind, request)


def run(machine: type[ShardMachine | QueuesMachine], kind: str, request: pytest.FixtureRequest) -> None:
    """Skips where there is no such store."""
    needs_server(kind, request)
    with tempfile.TemporaryDirectory() as folder:
        make_store(kind, Path(folder))
    run_state_machine_as_test(
        type(f"{kind.title()}{machine.__name__}", (machine,), {"kind": kind}),
        settings=settings(
            max_examples=EXAMPLES
            if LONG or kind in EMBEDDED
            else EXAMPLES // (4 if machine.servers == 1 else 2),  # a round trip costs what a hundred steps do
            stateful_step_count=50,
            deadline=None,
            derandomize=not LONG,
            print_blob=True,
            database=None,
            phases=list(Phase) if LONG else [Phase.explicit, Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
