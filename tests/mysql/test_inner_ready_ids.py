"""What `ReadyJobs` keeps only while a search is under way: it is memory, and no claim tells of it."""

from __future__ import annotations

import pytest

from pinlater.server.storage.mysql.ready_jobs import ROWS_MIN, ReadyBytes, ReadyJobs, ReadyMemory
from tests.mysql.test_ready_jobs import MOST, complete, put


@pytest.mark.parametrize("ends", ["all", "enough", "read on", "forgotten"])
def test_the_ids_from_before_a_search_are_not_kept_after_it(ends: str) -> None:
    ready = ReadyJobs(ReadyMemory(ReadyBytes(MOST)))
    complete(ready)
    put(ready, 1, 2, 3)
    ready.search_begins(1, 0, 0.0)
    match ends:
        case "all":
            ready.search_found_all([1], None, 0.5)
        case "enough":
            ready.search_found_enough([1], 0.5)
        case "read on":
            ready.search_read_on([1], [], ROWS_MIN, None, 0.5)
        case _:
            ready.forget()
    assert len(ready._before) == 0
