"""Servers and shards: health, jobs, size, calls, drain, owners."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pinlater.client import (
    AsyncClient,
    ClusterShard,
    ClusterStatus,
    FrontProcess,
    PartitionNumber,
    ShardDetails,
    ShardDrain,
    ShardJobs,
)
from pinlater.console.pages.formats import latency, size
from pinlater.console.pages.servers import ranges
from pinlater.domain.clock import ManualClock
from pinlater.server.main.core import Core
from tests.console.caller import Caller
from tests.console.pages.cluster_sample import FULL, ONE, TWO, cluster_sample
from tests.console.pages.visitor import PageVisitor


@pytest.fixture
def sample(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> ClusterStatus:
    """What the server of the console says from now on."""
    found = cluster_sample(clock.now_ms())

    async def cluster(_: AsyncClient) -> ClusterStatus:
        return found

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    return found


async def text_of(visitor: PageVisitor) -> str:
    """The words of the page, with single blanks between them."""
    return re.sub(r"\s+", " ", (await visitor.page("/servers")).text)


async def test_a_shard_shows_its_place_its_state_and_why_it_failed(visitor: PageVisitor, sample: ClusterStatus) -> None:
    text = await text_of(visitor)
    assert "mysql · db-2.example.org:3306/pinlater_2" in text
    assert "unreachable since 7 min ago, tried again and again Last failure 3 s ago: db-2.example.org:3306" in text
    assert "(using password: YES) Jobs as of 7 min ago" in text
    assert text.count("Jobs as of") == 1
    assert "slow full since 3 h ago" in text
    assert FULL in text
    assert text.count("unreachable") == 1


async def test_a_shard_shows_its_jobs_and_its_size(visitor: PageVisitor, sample: ClusterStatus) -> None:
    text = await text_of(visitor)
    assert "12,480 96 310 17 1,204,388 42 s 6.4 GiB" in text
    assert "1.8 GiB of 2.0 GiB" in text
    assert "2.0 MiB no answer in time" in text


async def test_a_shard_that_drains_shows_how_far_it_is(visitor: PageVisitor, sample: ClusterStatus) -> None:
    text = await text_of(visitor)
    assert "3 93 % of 48,000 jobs 3,140 35 min ago 21 in 2 min 27 s" in text
    assert "4 disappears once it is empty 100 % of 900 jobs 0 2 h ago 0 now" in text


async def test_the_calls_to_a_shard_are_shown_by_kind(visitor: PageVisitor, sample: ClusterStatus) -> None:
    text = await text_of(visitor)
    assert "1.3 ms slowest 5 s: 4.8 ms 9,410 calls, 61,200 requests 24 under way for 3 ms 12 waiting" in text
    assert "24 under way for 4 s 1,480 waiting" in text


async def test_the_due_jobs_that_the_server_remembers_are_shown_by_shard(
    visitor: PageVisitor, sample: ClusterStatus
) -> None:
    text = await text_of(visitor)
    assert "Claims from memory" in text
    assert text.count("1,204 427 KiB 8,020,110 3") == 3, "of shards 1, 3 and 4"


async def test_a_server_shows_what_it_says_of_itself_and_what_it_owns(
    visitor: PageVisitor, sample: ClusterStatus
) -> None:
    text = await text_of(visitor)
    assert "10.0.0.1:9011 web-1-811 answers 0.1.0 2 d 3 h ago 212 14 ms 36 3 about to move now 0 0 0" in text
    assert "10.0.0.3:9011 web-3-33 not used – – – – 19 9 s ago 41" in text


async def test_the_owners_of_slices_are_shown_with_those_that_are_about_to_move(
    visitor: PageVisitor, sample: ClusterStatus
) -> None:
    text = await text_of(visitor)
    assert f"{ONE} 5 0–4 (0–2 about to move) {TWO} 6 5–10 (9 about to move)" in text
    assert "no owner 1 15" in text


async def test_a_server_that_has_its_store_for_itself_shows_no_owners(visitor: PageVisitor, core: Core) -> None:
    await core.rates.sample()
    text = await text_of(visitor)
    assert "Owners" not in text
    assert "Draining" not in text
    assert "Due jobs in memory" not in text
    assert "memory reachable since now" in text
    assert "1 – – – – – –" in text  # no call in the last minute


async def test_the_api_answers_with_all_of_it(caller: Caller, sample: ClusterStatus) -> None:
    found = await caller.ok("GET", "/v1/cluster")
    one, gone, draining, *_, old = found["shards"]
    assert (one["details"]["size"]["used_bytes"], one["details"]["drain"]) == (6_871_947_674, None)
    assert one["details"]["lanes"][0]["slowest_ms"] == 4.8
    assert one["details"]["memory"] == {
        "jobs": 1_204,
        "size_bytes": 437_248,
        "claims": 8_020_110,
        "stale_claims": 3,
    }
    assert gone["details"]["memory"] is None
    assert (gone["in_reach"], gone["details"]["probing"]) == (False, True)
    assert draining["details"]["drain"]["live_at_first"] == 48_000
    assert draining["details"]["jobs"]["due"] == 3_100
    assert old["details"] is None
    assert (found["servers"][0]["version"], found["servers"][2]["version"]) == ("0.1.0", None)
    assert found["servers"][1]["connections"] == 212


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0–2"), ([0, 2, 3, 7, 8, 9], "0, 2–3, 7–9")]
)
def test_numbers_are_shown_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_sizes_and_short_spans_are_for_people() -> None:
    sizes = (None, 0, 999, 1_000, 1_536, 10 * 2**20, 5 * 2**40, 2**60)
    assert [size(each) for each in sizes] == [
        "–", "0 B", "999 B", "1.0 KiB", "1.5 KiB", "10 MiB", "5.0 TiB", "1,048,576 TiB",
    ]  # fmt: skip
    assert [latency(each) for each in (None, 0.04, 9.94, 9.95, 1_500)] == ["–", "0.0 ms", "9.9 ms", "10 ms", "1 s"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"drain": ShardDrain(1, live_at_first=5), "jobs": ShardJobs(1, 10)}, "1 0 % of 5 jobs 10"),
        ({"drain": ShardDrain(1)}, "not counted yet –"),
        ({"drain": ShardDrain(1, live_at_first=0), "jobs": ShardJobs(1)}, "100 % of 0 jobs 0 NOW"),
        ({"drain": ShardDrain(1, live_at_first=5), "jobs": ShardJobs(1), "probing": True}, "100 % of 5 jobs 0"),
        ({"failure": "db-1: reset", "failure_kind": "connection"}, "Last failure now: db-1: reset"),
        ({"failure_kind": "timeout"}, "Last failure now: it did not answer in time"),
        ({"failure_kind": "of a newer server"}, "Last failure now: of a newer server"),
    ],
)
async def test_a_shard_in_a_rare_state_is_shown_as_it_is(
    visitor: PageVisitor, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], shown: str
) -> None:
    """The share of a drain is not below 0 while jobs grow in number. Visitors who may not see the text of a failure see its kind. A shard
    whose jobs were counted before it was lost is not shown as empty."""
    details = ShardDetails("mysql", "", False, clock.now_ms(), failed_at_ms=clock.now_ms())._replace(**given)

    async def cluster(_: AsyncClient) -> ClusterStatus:
        return ClusterStatus(ONE, [], [ClusterShard("1", False, 1, [], details=details)])

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    text = await text_of(visitor)
    assert shown.removesuffix(" NOW") in text
    if "drain" in given:
        assert (re.search(r"jobs 0 [\d,]+ d ago – now ", text) is not None) is shown.endswith("NOW")


async def test_what_only_some_servers_have_is_shown_if_it_is_there(
    visitor: PageVisitor, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = await text_of(visitor)
    for word in ("Front processes", "several partitions", "ZooKeeper"):
        assert word not in text
    plain = AsyncClient.cluster
    numbers = {"mail": PartitionNumber(4, True, clock.now_ms() - 300_000), "orders": PartitionNumber(2, False)}
    fronts = [FrontProcess(5, 1_234_567, 89, 67, 4_321)]

    async def cluster(self: AsyncClient) -> ClusterStatus:
        trouble = "ZooKeeper does not answer (since 9)"
        return (await plain(self))._replace(front_processes=fronts, coordinator_trouble=trouble, partitions=numbers)

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    text = await text_of(visitor)
    assert "Front processes" in text
    assert "5 1,234,567 89 67 4,321" in text
    assert "ZooKeeper does not answer (since 9)" in text
    assert "mail 4 servers 5 min ago orders 2 operator –" in text
