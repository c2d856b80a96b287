"""Runs the machine. `MODEL_EXAMPLES=1000 pytest tests/storage_model` for a long run; a failure prints how to see it again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.stores import STORES, make_store
from tests.storage_model.machine import ShardMachine

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "50"))


@pytest.mark.timeout(0 if EXAMPLES > 100 else 120)
@pytest.mark.parametrize("kind", list(STORES))
def test_a_store_answers_as_the_memory_store_does(kind: str) -> None:
    """Whatever is asked in whatever order. Memory against itself shows that the machine is sound."""
    with tempfile.TemporaryDirectory() as folder:
        make_store(kind, Path(folder))  # skips where there is no such store
    run_state_machine_as_test(
        type(f"{kind.title()}Machine", (ShardMachine,), {"kind": kind}),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            print_blob=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
