"""The chart on a real API server, with Kubernetes' controllers: Helm's verbs, admission, roll-outs, evictions, scale-down."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster, Kubelet, Refused, eventually, path_of
from tests.kubernetes.helm import (
    CHART,
    NAMES,
    VALUES,
    KubernetesObject,
    objects,
    one,
    pod_of,
    rendered,
)
from tests.kubernetes.mid_job import POOL, JobsOfAPod
from tests.kubernetes.pods_here import PodsHere
from tests.kubernetes.release import Release

pytestmark = pytest.mark.kubernetes
_NUMBERS = itertools.count(1)
WORKLOADS = ("Deployment", "StatefulSet")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With KEDA's kinds."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        found.install_keda_kinds()
        found.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "batch"},
                "value": 1,
            }
        )
        yield found


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """The test's own, which admits pods of the restricted level only."""
    return cluster.namespace(f"test-{next(_NUMBERS)}")


@pytest.fixture
def release(cluster: Cluster, namespace: str) -> Release:
    return Release(cluster, namespace)


def images_of(cluster: Cluster, namespace: str, each: KubernetesObject) -> list[str]:
    found: Any = cluster.get(each, namespace)
    return [container["image"] for container in pod_of(found)["containers"]]


@pytest.mark.parametrize("name", NAMES)
def test_the_api_server_accepts_each_object_and_knows_each_field(cluster: Cluster, namespace: str, name: str) -> None:
    for each in objects(rendered(name)):
        cluster.create(each, namespace, "?dryRun=All&fieldValidation=Strict")


@pytest.mark.parametrize("name", NAMES)
def test_pods_are_admitted_at_the_restricted_level_of_pod_security(cluster: Cluster, namespace: str, name: str) -> None:
    for each in objects(rendered(name)):
        if each["kind"] in WORKLOADS:
            claims = [claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])]
            volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
            spec = pod_of(each) | {"volumes": [*pod_of(each)["volumes"], *volumes]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
            cluster.create(pod, namespace, "?dryRun=All&fieldValidation=Strict")


@pytest.mark.parametrize("name", NAMES)
def test_helm_installs_upgrades_rolls_back_and_uninstalls(
    cluster: Cluster, namespace: str, release: Release, name: str
) -> None:
    assert "STATUS: deployed" in release.apply(name)
    installed = release.objects()
    assert all(cluster.get(each, namespace) for each in installed)
    server = next(each for each in installed if each["kind"] in WORKLOADS and "console" not in each["metadata"]["name"])
    before = images_of(cluster, namespace, server)
    release.apply(name, "image.tag=2.0", "console.enabled=false", verb="upgrade")
    workloads = [each for each in release.objects() if each["kind"] in WORKLOADS]
    own = [image for each in workloads for image in images_of(cluster, namespace, each) if "pinlater" in image]
    assert own
    assert all(image.endswith(":2.0") for image in own)
    console = [each for each in installed if each["metadata"]["name"].endswith("-console")]
    assert not any(cluster.get(each, namespace) for each in console)
    release.run("rollback", "1")
    assert release.objects() == installed
    assert images_of(cluster, namespace, server) == before
    assert all(cluster.get(each, namespace) for each in console)
    release.run("uninstall")
    for each in installed:
        eventually(partial(cluster.lacks, each, namespace))


def test_wrong_values_install_nothing(cluster: Cluster, namespace: str, release: Release) -> None:
    said = release.apply("everything", "pools[0].queues=null", ok=False)
    assert "/pools/0/queues" in said
    assert not cluster.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"]


def test_an_upgrade_with_another_volume_is_refused_by_name_unless_the_set_is_deleted_first(
    cluster: Cluster, namespace: str, release: Release
) -> None:
    release.apply("sqlite", "store.volume.size=1536Mi")
    release.apply("sqlite", "store.volume.size=1536Mi", "image.tag=2.0", verb="upgrade")
    for setting, named in (
        ("size=2Gi", "size: the volume has 1536Mi"),
        ("storageClassName=fast", 'Name: the volume has ""'),
    ):
        refused = release.apply(
            "sqlite", "store.volume.size=1536Mi", f"store.volume.{setting}", verb="upgrade", ok=False
        )
        assert f"store.volume.{setting.partition('=')[0]}: " in refused
        assert named in refused
    server = one(release.objects(), "StatefulSet", "server")
    path = f"{path_of(server, namespace)}/{server['metadata']['name']}"
    cluster.call("DELETE", path, {"propagationPolicy": "Orphan"})
    eventually(partial(cluster.lacks, server, namespace))
    release.apply("sqlite", "store.volume.size=2Gi", verb="upgrade")
    [claim] = (cluster.get(server, namespace) or {})["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"


def test_without_keda_the_error_names_the_missing_kind_and_nothing_is_installed(tmp_path: Path) -> None:
    with Cluster(tmp_path) as without:
        namespace = without.namespace("test")
        said = Release(without, namespace).apply("everything", ok=False)
        assert 'no matches for kind "ScaledObject" in version "keda.sh/v1alpha1"' in said
        assert not without.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"]


def test_a_roll_out_of_servers_takes_none_away_before_another_is_ready(
    cluster: Cluster, namespace: str, release: Release
) -> None:
    values = ("console.enabled=false", "pools=null")
    with Kubelet(cluster, namespace) as kubelet:
        release.apply("all", *values)
        eventually(lambda: kubelet.ready("server") == 2)
        first = {pod["metadata"]["name"] for pod in cluster.pods(namespace, "server")}
        kubelet.seen.clear()
        release.apply("all", *values, "image.tag=2.0", verb="upgrade")
        eventually(lambda: not first & {pod["metadata"]["name"] for pod in cluster.pods(namespace, "server")})
        eventually(lambda: len(cluster.pods(namespace, "server")) == 2)
        assert min(each.ready for each in kubelet.seen) >= 2
        assert max(each.staying for each in kubelet.seen) == 3


def test_a_roll_out_whose_pods_are_never_ready_leaves_the_old_ones(
    cluster: Cluster, namespace: str, release: Release
) -> None:
    with Kubelet(cluster, namespace) as kubelet:
        release.apply("all")
        eventually(lambda: (kubelet.ready("server"), kubelet.ready("pool-mail")) == (2, 3))
        kubelet.held.set()
        release.apply("all", "image.tag=broken", "pools[0].image=broken", verb="upgrade")
        eventually(lambda: len(cluster.pods(namespace, "server")) == 3)
        eventually(lambda: len(cluster.pods(namespace, "pool-mail")) == 4)
        assert (kubelet.ready("server"), kubelet.ready("pool-mail")) == (2, 3)


def test_drained_nodes_take_one_server_at_a_time(cluster: Cluster, namespace: str, release: Release) -> None:
    with Kubelet(cluster, namespace) as kubelet:
        release.apply("all")
        eventually(lambda: kubelet.ready("server") == 2)
        budget = one(release.objects(), "PodDisruptionBudget", "server")
        eventually(lambda: (cluster.get(budget, namespace) or {})["status"].get("disruptionsAllowed") == 1)
        first, second = (pod["metadata"]["name"] for pod in cluster.pods(namespace, "server"))
        kubelet.held.set()
        cluster.evict(namespace, first)
        with pytest.raises(Refused) as refused:
            cluster.evict(namespace, second)
        assert refused.value.status == HTTPStatus.TOO_MANY_REQUESTS
        kubelet.held.clear()
        eventually(lambda: cluster.evicts(namespace, second))


def test_a_worker_that_goes_has_its_grace_and_ten_seconds(cluster: Cluster, namespace: str, release: Release) -> None:
    with Kubelet(cluster, namespace, ends_pods=False) as kubelet:
        release.apply("everything", "autoscaling.enabled=false", "pools[0].replicas=3")
        eventually(lambda: kubelet.ready("pool-images") == 3)
        pool = one(release.objects(), "Deployment", "images")
        cluster.scale(namespace, pool["metadata"]["name"], 1)
        going = eventually(lambda: [pod for pod in cluster.all_pods(namespace, "pool-images") if is_going(pod)])
        assert {pod["metadata"]["deletionGracePeriodSeconds"] for pod in going} == {610}


@pytest.mark.parametrize("goes", ["is evicted", "is scaled down"])
def test_a_pod_that_goes_in_mid_job_ends_what_it_can_and_gives_the_rest_back_unspent(
    cluster: Cluster, namespace: str, release: Release, pods: PodsHere, tmp_path: Path, goes: str
) -> None:
    """Its program runs here, as the API server has the pod, and gets the time to stop that the API server gives it."""
    (tmp_path / "pool.yaml").write_text(POOL)
    release.run("install", CHART, "-f", VALUES / "sqlite.yaml", "-f", tmp_path / "pool.yaml")
    pool = one(release.objects(), "Deployment", "mail")
    with Kubelet(cluster, namespace, ends_pods=False) as kubelet:
        eventually(lambda: (kubelet.ready("server"), kubelet.ready("pool-mail")) == (1, 1))
        [server], [worker] = (as_workload(cluster.pods(namespace, name)) for name in ("server", "pool-mail"))
        jobs = JobsOfAPod(tmp_path, pods, server, worker)
        if goes == "is evicted":
            eventually(lambda: cluster.evicts(namespace, worker["metadata"]["name"]))
        else:
            cluster.scale(namespace, pool["metadata"]["name"], 0)
        [going] = eventually(lambda: [pod for pod in cluster.all_pods(namespace, "pool-mail") if is_going(pod)])
        assert going["metadata"]["name"] == worker["metadata"]["name"]
        pods.tell_to_go(worker)
        jobs.let_short_one_end()
        assert pods.end(worker, going["metadata"]["deletionGracePeriodSeconds"]) == 0
        jobs.check()


def as_workload(pods: Sequence[KubernetesObject]) -> list[KubernetesObject]:
    """Each pod, with its spec where a Deployment has that."""
    return [{"metadata": pod["metadata"], "spec": {"template": pod}} for pod in pods]


def is_going(pod: Any) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def test_a_pool_that_becomes_scaled_begins_with_one_pod(cluster: Cluster, namespace: str, release: Release) -> None:
    release.apply("roles", "autoscaling.enabled=false", "pools[0].replicas=7")
    pool = one(release.objects(), "Deployment", "images")
    assert (cluster.get(pool, namespace) or {})["spec"]["replicas"] == 7
    release.apply("roles", verb="upgrade")
    assert (cluster.get(pool, namespace) or {})["spec"]["replicas"] == 1


def test_an_upgrade_leaves_the_number_of_pods_of_a_scaled_pool(
    cluster: Cluster, namespace: str, release: Release
) -> None:
    release.apply("roles")
    pool = one(release.objects(), "Deployment", "images")
    cluster.scale(namespace, pool["metadata"]["name"], 9)
    release.apply("roles", "pools[0].image=registry.example/images:8", verb="upgrade")
    found: Any = cluster.get(pool, namespace)
    assert (found["spec"]["replicas"], images_of(cluster, namespace, pool)) == (9, ["registry.example/images:8"])
