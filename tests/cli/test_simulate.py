"""`pinlater bench simulate`: a cluster on a simulated clock, with the operator's settings, load and faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinlater.simulation.fault_kinds import FAULT_KINDS
from pinlater.simulation.history import APPLIED, read_history
from tests.cli.conftest import Pinlater, on_terminal
from tests.simulation.defects import forget_successes

# A second or less of real time each.
SIMULATE = ("bench", "simulate", "--seed", "7", "--for", "20s", "--set", "jobs.claim_timeout_ms=5s")
SMALL = (*SIMULATE, "--rate", "3", "--workers", "3", "--handler-time", "50ms")


def test_a_simulation_without_faults_runs_every_job_and_breaks_no_promise(offline: Pinlater) -> None:
    report = offline.ok(*SMALL, "--json").json
    assert report["enqueued"] == report["succeeded"] > 30
    assert (report["failed"], report["failed_attempts"], report["unfinished"]) == (0, 0, 0)
    assert (report["errors"], report["faults"], report["broken_promises"]) == ([], [], [])
    assert (
        0 < report["wait"]["p50_ms"] <= report["wait"]["p95_ms"] <= report["wait"]["p99_ms"] <= report["wait"]["max_ms"]
    )


def test_a_fault_shows_in_the_report(offline: Pinlater) -> None:
    """While the only shard is unreachable, enqueues are tried again until it is back."""
    report = offline.ok(*SMALL, "--shards", "1", "--fault", "lose-shard@4s+6s", "--json").json
    [fault] = report["faults"]
    assert (fault["fault"], fault["at_ms"], fault["duration_ms"], fault["target"]) == ("lose-shard", 4_000, 6_000, 1)
    assert 3_000 < fault["enqueue_gap_ms"] <= fault["enqueue_max_ms"] < 20_000
    assert report["enqueued"] == report["succeeded"]


@pytest.mark.parametrize("kind", list(FAULT_KINDS))
def test_each_fault_breaks_no_promise(offline: Pinlater, kind: str) -> None:
    report = offline.ok(*SMALL, "--servers", "2", "--fault", f"{kind}@5s+5s", "--json").json
    assert report["broken_promises"] == []
    assert report["unfinished"] == 0
    assert report["faults"][0]["drained_ms"] is not None


def test_the_seed_decides_the_whole_report(offline: Pinlater) -> None:
    several = ("--fault", "kill-server@4s", "--fault", "lossy-shard@6s+8s", "--fault", "kill-worker@8s+1s")
    first, again = (offline.ok(*SMALL, *several).out for _ in range(2))
    other = offline.ok(*SMALL, "--seed", "8", *several).out
    assert first == again
    assert first != other


def test_several_queues_have_their_own_rates(offline: Pinlater) -> None:
    few = offline.ok(*SIMULATE, "--queue", "a=1", "--json").json
    more = offline.ok(*SIMULATE, "--queue", "a=1", "--queue", "b=4", "--json").json
    assert more["enqueued"] > 2 * few["enqueued"]


def test_the_settings_file_holds_for_the_simulated_servers(offline: Pinlater, tmp_path: Path) -> None:
    """One attempt by default, so that each failure is final."""
    path = tmp_path / "pinlater.toml"
    path.write_text("[jobs]\ndefault_attempts = 1\n")
    report = offline.ok(*SMALL, "--config", str(path), "--failing-percent", "100", "--json").json
    assert report["failed"] == report["failed_attempts"] == report["enqueued"] > 0


def test_the_shards_of_the_settings_are_not_asked(offline: Pinlater, tmp_path: Path) -> None:
    """Those of the operator are replaced by simulated ones: no driver and no database is needed."""
    report = offline.ok(*SMALL, "--set", "store=mysql://pinlater@127.0.0.1:1/pinlater_1", "--json").json
    assert report["succeeded"] > 0


def test_a_load_beyond_the_workers_leaves_jobs_and_breaks_no_promise(offline: Pinlater) -> None:
    done = offline(
        *SIMULATE, "--rate", "5", "--workers", "1", "--concurrency", "1", "--handler-time", "1m",
        "--json",
    )  # fmt: skip
    assert json.loads(done.err)["note"].startswith("5 jobs a second of 1m need more than the 1 slots")
    assert done.code == 0
    assert done.json["unfinished"] > 0
    assert done.json["broken_promises"] == []


def test_a_broken_promise_is_code_1_with_the_seed_and_the_history(
    offline: Pinlater, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A defect is planted: some successes are answered and not stored."""
    forget_successes(monkeypatch)
    path = tmp_path / "history.txt"
    done = offline(*SMALL, "--history", str(path))
    assert done.code == 1
    assert f"promises were broken; the history is in {path}, and --seed 7" in done.err
    assert "REVERSED" in done.out
    lines = path.read_text().splitlines()
    assert lines[-1].startswith("REVERSED ")
    acks = read_history(line.partition(" ")[2] for line in lines).acks
    assert any(ack.succeeded and ack.outcome == APPLIED for ack in acks)


def test_the_faults_are_listed_with_how_long_they_last(offline: Pinlater) -> None:
    listed = offline.ok("bench", "simulate", "--list-faults").out
    assert "kill-server\t5s\t" in listed
    named = offline.ok("bench", "simulate", "--list-faults", "--json").json
    assert [each["name"] for each in named] == list(FAULT_KINDS)


def test_the_report_fits_80_columns() -> None:
    said = on_terminal("127.0.0.1:1", 80, False, *SMALL, "--fault", "suspend-server@5s+7s:2")
    *_, report = said.rpartition("jobs enqueued")
    lines = report.splitlines()
    assert any(line.startswith("suspend-server@5s+7s:2") for line in lines)
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("fault ") for line in lines) == 1
