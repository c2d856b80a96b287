"""Pools that KEDA scales, on a real API server, by an endpoint that answers as our servers do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from bench.servers import PinLaterServer, pinlater_server
from pinlater.client import Ack, Client, Job
from tests.kubernetes.cluster import Cluster, Kubelet, eventually
from tests.kubernetes.helm import one
from tests.kubernetes.keda import Demand, start_keda, start_prometheus
from tests.kubernetes.release import Release

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]
_NUMBERS = itertools.count(1)
# KEDA counts three failures before it falls back, and asks once for itself and once for the autoscaler.
_POLLS = 12


@pytest.fixture(scope="module")
def demand() -> Iterator[Demand]:
    with Demand() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, demand: Demand) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        found.install_keda_kinds()
        start_keda(found, demand)
        yield found


class KedaPool:
    """The pool `images` of the roles, which are installed with these settings besides: at most 40 pods of 4 slots."""

    def __init__(self, cluster: Cluster, namespace: str, least: int, *settings: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        release = Release(cluster, namespace)
        quick = ("pools[0].autoscaling.scaleDownWindowSeconds=1", "autoscaling.pollingIntervalSeconds=1")
        release.apply("roles", *quick, *settings, f"pools[0].autoscaling.minReplicas={least}")
        self._deployment = one(release.objects(), "Deployment", "images")

    def pods(self) -> int:
        found: Any = self._cluster.get(self._deployment, self.namespace)
        return int(found["spec"]["replicas"])

    def wait_for(self, pods: int) -> None:
        eventually(lambda: self.pods() == pods, 120)


@pytest.fixture
def pool(request: pytest.FixtureRequest, cluster: Cluster, demand: Demand) -> Iterator[KedaPool]:
    demand.status, demand.slots, demand.server = HTTPStatus.OK, 0, None
    namespace = cluster.namespace(f"test-{next(_NUMBERS)}")
    with Kubelet(cluster, namespace):
        yield KedaPool(cluster, namespace, *request.param)
        Release(cluster, namespace).run("uninstall")


from_zero = pytest.mark.parametrize("pool", [(0,)], indirect=True, ids=["from zero"])
from_one = pytest.mark.parametrize("pool", [(1,)], indirect=True, ids=["from one"])
by_prometheus = pytest.mark.parametrize(
    "pool",
    [(0, "autoscaling.prometheus=http://prometheus.monitoring:9090", "autoscaling.prometheusLabels.namespace=shop")],
    indirect=True,
    ids=["prometheus"],
)
unknown = pytest.mark.parametrize("status", [HTTPStatus.SERVICE_UNAVAILABLE, 0], ids=["503", "no answer"])


@from_zero
def test_a_pool_starts_its_first_pod_when_there_is_demand_and_ends_it_when_there_is_none(
    pool: KedaPool, demand: Demand
) -> None:
    pool.wait_for(0)
    demand.slots = 1
    pool.wait_for(1)
    demand.slots = 0
    pool.wait_for(0)
    assert (
        f"http://jobs-pinlater-dequeue.{pool.namespace}.svc:9999/demand?queue=thumbnails&queue=originals"
        in demand.asked
    )


class Shop:
    """A real server with the queues of the pool."""

    def __init__(self, server: PinLaterServer) -> None:
        self.server = server
        self.client = Client(f"127.0.0.1:{server.port}")
        for queue in ("thumbnails", "originals"):
            self.client.create_queue(queue)

    def enqueue(self, jobs: int) -> None:
        self.client.enqueue("thumbnails", [Job(b"x") for _ in range(jobs)])

    def finish(self, jobs: int) -> None:
        taken = self.client.dequeue("thumbnails", limit=jobs)
        self.client.ack("thumbnails", [Ack(job.descriptor) for job in taken.jobs])


@pytest.fixture
def start_shop(tmp_path: Path) -> Iterator[Callable[[], Shop]]:
    with ExitStack() as running:

        def start() -> Shop:
            folder = tmp_path / str(next(_NUMBERS))
            folder.mkdir()
            shop = Shop(running.enter_context(pinlater_server(folder / "jobs.db", log=folder / "log")))
            running.callback(shop.client.close)
            return shop

        yield start


@from_zero
def test_a_pool_follows_a_real_server(pool: KedaPool, demand: Demand, start_shop: Callable[[], Shop]) -> None:
    """From none to two pods for eight jobs at once of four slots each, and back to none when the jobs are done."""
    shop = start_shop()
    demand.server = shop.server.http_port
    pool.wait_for(0)
    shop.enqueue(8)
    pool.wait_for(2)
    shop.finish(8)
    pool.wait_for(0)


@by_prometheus
def test_a_pool_follows_what_a_real_prometheus_reads_from_the_servers_of_its_release(
    cluster: Cluster, pool: KedaPool, demand: Demand, start_shop: Callable[[], Shop]
) -> None:
    """When that server is gone, its series end, and the pods stay."""
    shop, other = start_shop(), start_shop()
    other.enqueue(100)
    demand.server = start_prometheus(cluster, {"shop": shop.server.http_port, "other": other.server.http_port})
    pool.wait_for(0)
    shop.enqueue(8)
    pool.wait_for(2)
    shop.finish(8)
    pool.wait_for(0)
    shop.enqueue(8)
    pool.wait_for(2)
    shop.server.kill()
    demand.wait_for_polls("thumbnails", _POLLS)
    assert pool.pods() == 2


@from_one
def test_a_pool_has_as_many_pods_as_its_demand_fills_and_one_without_demand(pool: KedaPool, demand: Demand) -> None:
    demand.slots = 18
    pool.wait_for(5)
    demand.slots = 0
    pool.wait_for(1)


@unknown
@from_zero
def test_pods_stay_while_the_demand_is_unknown(pool: KedaPool, demand: Demand, status: int) -> None:
    demand.slots = 18
    pool.wait_for(5)
    demand.status = status
    demand.wait_for_polls("thumbnails", _POLLS)
    assert pool.pods() == 5
    demand.status, demand.slots = HTTPStatus.OK, 0
    pool.wait_for(0)


@unknown
@from_zero
def test_a_pool_without_pods_has_one_while_the_demand_is_unknown(pool: KedaPool, demand: Demand, status: int) -> None:
    """If only the answer is broken, jobs are worked on."""
    pool.wait_for(0)
    demand.status = status
    pool.wait_for(1)
    demand.wait_for_polls("thumbnails", _POLLS)
    assert pool.pods() == 1
    demand.status = HTTPStatus.OK
    pool.wait_for(0)
