"""Names of a mebibyte: what the server keeps, logs and answers of them is bounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.servers import PinLaterServer
from pinlater.wire.generated import structs as types
from tests.hostile.callers import HostileCaller

pytestmark = pytest.mark.crash

LONG = "x" * 2**20
ANSWER_BYTES_MAX = 20_000
LOG_LINE_BYTES_MAX = 20_000

CALLS: dict[str, Callable[[str], dict[str, Any]]] = {
    "createQueue": lambda text: {"name": text},
    "deleteQueue": lambda text: {"name": text, "password": text},
    "enqueueJobs": lambda text: {"request": types.EnqueueRequest(text, [types.Job(b"")], text)},
    "dequeueJobs": lambda text: {"request": types.DequeueRequest(text, 1)},
    "getJobCount": lambda text: {"request": types.CountRequest(text, 0, regex=text)},
    "scanJobs": lambda text: {"request": types.ScanRequest("q", 0, continuation=text, regex=text)},
    "deleteJobs": lambda text: {"request": types.DeleteRequest("q", 0, 1, regex=text)},
    "lookupJobs": lambda text: {"request": types.LookupRequest([text])},
    "checkpointJobs": lambda text: {"request": types.CheckpointBatch("q", [types.Checkpoint(text)])},
    "pauseQueue": lambda text: {"queue": text},
    "getQueueStats": lambda text: {"queues": [text]},
    "deleteJobsByDescriptor": lambda text: {"queue": text, "descriptors": [text]},
}


@pytest.mark.parametrize("method", CALLS)
def test_a_long_name_comes_back_in_no_error_and_fills_no_log(
    server: PinLaterServer, tmp_path: Path, method: str
) -> None:
    with HostileCaller(server) as caller:
        caller.send(method, **CALLS[method](LONG))
        assert len(caller.receive_frame()) < ANSWER_BYTES_MAX
        assert caller.call("getQueueNames").exception is None
    assert max(len(line) for line in (tmp_path / "log").read_bytes().splitlines()) < LOG_LINE_BYTES_MAX


def test_a_long_source_is_kept_cut_and_still_tells_callers_apart(
    server: PinLaterServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old client's checkpoint counts by its source, also by one that is too long to be kept."""
    with HostileCaller(server) as caller:
        for _ in range(2):
            caller.call("enqueueJobs", request=types.EnqueueRequest("q", [types.Job(b"old")]))
        monkeypatch.setattr("tests.hostile.callers.CONTEXT", types.RequestContext(LONG + "1", LONG))
        dequeued = caller.call("dequeueJobs", request=types.DequeueRequest("q", 2)).value
        first, second = dequeued.metadata
        caller.call("checkpointJobs", request=_checkpoint(first))
        monkeypatch.setattr("tests.hostile.callers.CONTEXT", types.RequestContext(LONG + "2", ""))
        caller.call("checkpointJobs", request=_checkpoint(second))
        jobs = caller.call("lookupJobs", request=types.LookupRequest([first, second], True)).value
    assert [jobs[each].body for each in (first, second)] == [b"new", b"old"]
    assert all(len(job.claim_descriptor) < 400 for job in jobs.values())
    assert max(len(line) for line in (tmp_path / "log").read_bytes().splitlines()) < LOG_LINE_BYTES_MAX


def _checkpoint(descriptor: str) -> types.CheckpointBatch:
    return types.CheckpointBatch("q", [types.Checkpoint(descriptor, new_body=b"new")])
