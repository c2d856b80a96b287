"""Pools that KEDA scales, on a real API server, by an endpoint that answers as our servers do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from bench.servers import pinlater_server
from pinlater.client import Ack, Client, Job
from tests.kubernetes.cluster import Cluster, Kubelet, eventually
from tests.kubernetes.helm import one
from tests.kubernetes.keda import Demand, start_keda
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
    """The pool `images` of the roles, which are installed: at most 40 pods of 4 slots."""

    def __init__(self, cluster: Cluster, namespace: str, least: int) -> None:
        self._cluster = cluster
        self.namespace = namespace
        release = Release(cluster, namespace)
        quick = ("pools[0].autoscaling.scaleDownWindowSeconds=1", "autoscaling.pollingIntervalSeconds=1")
        release.apply("roles", *quick, f"pools[0].autoscaling.minReplicas={least}")
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
        yield KedaPool(cluster, namespace, request.param)
        Release(cluster, namespace).run("uninstall")


from_zero = pytest.mark.parametrize("pool", [0], indirect=True)
from_one = pytest.mark.parametrize("pool", [1], indirect=True)
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


@from_zero
def test_a_pool_follows_a_real_server(pool: KedaPool, demand: Demand, tmp_path: Path) -> None:
    """From none to two pods for eight jobs at once of four slots each, and back to none when the jobs are done."""
    with pinlater_server(tmp_path / "jobs.db", log=tmp_path / "log") as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            for queue in ("thumbnails", "originals"):
                client.create_queue(queue)
            demand.server = server.http_port
            pool.wait_for(0)
            client.enqueue("thumbnails", [Job(b"x") for _ in range(8)])
            pool.wait_for(2)
            taken = client.dequeue("thumbnails", limit=8)
            client.ack("thumbnails", [Ack(job.descriptor) for job in taken.jobs])
            pool.wait_for(0)
        server.stop()


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
