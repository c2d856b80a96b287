"""The outbox that a page of the docs has the reader save."""

from __future__ import annotations

import sqlite3
import types
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import Ack, Client, Job
from pinlater.testing import RealServer
from tests.house.snippets import blocks


@pytest.fixture
def outbox(repository: Path) -> Any:
    """The program of the page."""
    page = (repository / "docs/how-to/outbox.md").read_text()
    [code] = [block.text for block in blocks(page) if block.remarks.get("save") == "outbox.py"]
    module = types.ModuleType("outbox")
    exec(compile(code, "outbox.py", "exec"), module.__dict__)
    return module


def test_jobs_of_an_outbox_keep_their_ordering_keys_and_run_in_the_order_of_their_rows(
    outbox: Any, tmp_path: Path
) -> None:
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute(outbox.TABLE)
    with RealServer(tmp_path) as server, Client(server.address) as client:
        client.create_queue("q")
        for body in (b"1", b"2", b"3"):
            with database:
                outbox.put(database, "q", Job(body, ordering_key="k"))
        assert outbox.relay(database, client) == 3
        for body in (b"1", b"2", b"3"):
            [job] = client.dequeue("q", 5).jobs
            assert job.body == body
            client.ack("q", [Ack(job.descriptor)])


@pytest.mark.parametrize("key", ["", "k" * 129, "é" * 65])
def test_an_outbox_takes_no_ordering_key_that_would_keep_its_relay_from_all_later_jobs(outbox: Any, key: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute(outbox.TABLE)
    with pytest.raises(ValueError, match="an ordering key has 1 to 128 bytes"):
        outbox.put(database, "q", Job(b"x", ordering_key=key))
