"""The files that the original reads too, in a whole server in this process: what they do to dequeues, and what a broken one does not."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pinlater.app import App
from tests.promises.rig import Turned
from tests.promises.test_queues import refused
from tests.promises.wire import Wire

Run = Callable[..., Awaitable[App]]


def limits_file(path: Path, **limits: float) -> Path:
    queues = [{"name": name, "queueConfig": {"maxJobsPerSecond": rate}} for name, rate in limits.items()]
    path.write_text(json.dumps({"queues": queues}))
    return path


async def in_a_second(app: App, wire: Wire, turned: Turned) -> int:
    """How many jobs the queue gives out from an empty second on, one at a time."""
    del app
    turned.monotonic_s += 60  # the bucket is full again
    got = 0
    for _ in range(200):
        try:
            got += len(await wire.claim("q", 1))
        except Exception:  # noqa: BLE001 the limit is what ends it
            return got
    return got


async def started(run: Run, **flags: object) -> tuple[App, Wire, Turned]:
    turned = Turned()
    app = await run(turned.clock(), **flags)
    wire = await Wire.connect(app.thrift.port)
    await wire.create("q")
    await wire.enqueue("q", *[b"x"] * 1_000)
    return app, wire, turned


async def test_the_limits_file_limits_dequeues_and_is_read_again_when_it_changes(run: Run, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "limits.json", q=10)
    app, wire, turned = await started(run, queue_limits_file=str(path))
    assert await in_a_second(app, wire, turned) == 10
    limits_file(path, q=3)
    await app._look_at_files()
    assert await in_a_second(app, wire, turned) == 3
    limits_file(path, q=0)
    await app._look_at_files()
    assert await in_a_second(app, wire, turned) == 0
    limits_file(path, other=1)
    await app._look_at_files()
    assert len(await wire.claim("q", 500)) == 500
    await wire.close()


async def test_a_broken_limits_file_is_logged_and_the_old_values_stay(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = limits_file(tmp_path / "limits.json", q=10)
    app, wire, turned = await started(run, queue_limits_file=str(path))
    for broken in (
        "{",
        "[]",
        '{"queues": [{"name": "q"}]}',
        '{"queues": [{"name": "q", "queueConfig": {"maxJobsPerSecond": -1}}]}',
    ):
        caplog.clear()
        path.write_text(broken)
        await app._look_at_files()
        assert "last good values stay" in caplog.text, broken
        assert await in_a_second(app, wire, turned) == 10
    path.unlink()
    await app._look_at_files()
    assert await in_a_second(app, wire, turned) == 10
    await wire.close()


async def test_fractions_are_allowed(run: Run, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "limits.json", q=0.1)
    _, wire, turned = await started(run, queue_limits_file=str(path))
    assert len(await wire.claim("q", 1)) == 1
    turned.monotonic_s += 9.9
    assert (await refused(wire.dequeue("q"))).code == 429
    turned.monotonic_s += 0.2
    assert len(await wire.claim("q", 1)) == 1
    await wire.close()


async def test_a_limit_is_divided_by_the_distinct_lines_of_the_server_set(run: Run, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "limits.json", q=12)
    servers = tmp_path / "servers"
    servers.write_text("a:1\nb:1\n\n  \nb:1\n c:1 \n")
    app, wire, turned = await started(run, queue_limits_file=str(path), server_set_file=str(servers))
    assert await in_a_second(app, wire, turned) == 4
    servers.write_text("a:1\nb:1\n")
    await app._look_at_files()
    assert await in_a_second(app, wire, turned) == 6
    servers.write_text("")  # ignored, the old number kept
    await app._look_at_files()
    assert await in_a_second(app, wire, turned) == 6
    servers.unlink()
    await app._look_at_files()
    assert await in_a_second(app, wire, turned) == 6
    await wire.close()


async def test_without_a_server_set_the_limit_is_per_server(run: Run, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "limits.json", q=12)
    app, wire, turned = await started(run, queue_limits_file=str(path))
    assert await in_a_second(app, wire, turned) == 12
    await wire.close()


async def test_the_lower_of_the_file_and_the_store_holds(run: Run, tmp_path: Path) -> None:
    path = limits_file(tmp_path / "limits.json", q=12)
    app, wire, turned = await started(run, queue_limits_file=str(path))
    await wire.configure("q", maxJobsPerSecond=5.0)
    assert await in_a_second(app, wire, turned) == 5
    await wire.configure("q", maxJobsPerSecond=50.0)
    assert await in_a_second(app, wire, turned) == 12
    await wire.close()


@pytest.mark.parametrize("jump_s", [3_600.0, -3_600.0])
async def test_a_clock_jump_is_logged_and_never_shortens_or_lengthens_a_live_claim(
    run: Run, jump_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    app, wire, turned = await started(run)
    [(descriptor, _)] = await wire.claim("q", 1)
    deadline = (await wire.job(descriptor)).claimDeadlineMillis
    turned.wall_s += jump_s
    await app._look_at_clock()
    assert "wall clock jumped" in caplog.text
    sweep = next(work for work in app._periodic_work() if work.name == "claim-timeouts")
    await sweep.run()
    assert await wire.state(descriptor) == 1
    assert (await wire.job(descriptor)).claimDeadlineMillis == deadline
    turned.monotonic_s += 601
    await sweep.run()
    assert await wire.state(descriptor) == 0
    await wire.close()
