"""What the chart renders: golden files, schemas of Kubernetes, what the programs take, and which values it refuses."""

from __future__ import annotations

import copy
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from pinlater.version import __version__
from tests.house.snippets import blocks
from tests.kubernetes import schemas
from tests.kubernetes.helm import (
    CHART,
    GOLDEN,
    NAMES,
    RELEASE,
    REPOSITORY,
    VALUES,
    VERSIONS,
    container_of,
    objects,
    one,
    pod_of,
    rendered,
    run_helm,
    template_words,
)

WORKLOADS = ("Deployment", "StatefulSet")
KEDA_KINDS = ("ScaledObject", "TriggerAuthentication")


@pytest.mark.parametrize("name", NAMES)
def test_helm_lints_the_chart(name: str) -> None:
    run_helm("lint", "--strict", CHART, "-f", VALUES / f"{name}.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_it_renders_what_the_golden_file_has(name: str) -> None:
    """`python -m tests.kubernetes.helm` records the files anew."""
    assert rendered(name) == (GOLDEN / f"{name}.yaml").read_text()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_each_object_fits_the_schema_of_its_kind(name: str, version: str) -> None:
    for each in objects(rendered(name)):
        schemas.check(each, version)


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", *KEDA_KINDS])
def test_the_schemas_refuse_an_unknown_field(kind: str) -> None:
    """So that the test above finds one."""
    found = copy.deepcopy(next(each for each in objects(rendered("everything")) if each["kind"] == kind))
    schemas.check(found, VERSIONS[0])
    found["spec"]["unknown"] = 1
    with pytest.raises(jsonschema.ValidationError, match="unknown"):
        schemas.check(found, VERSIONS[0])


def test_the_image_is_of_the_version_of_the_package() -> None:
    assert container_of(one(objects(rendered("sqlite")), "StatefulSet", "server"))["image"] == f"pinlater:{__version__}"


@pytest.mark.parametrize("name", NAMES)
def test_no_pod_has_privileges_or_a_token_of_the_api_server_or_writes_to_its_image(name: str) -> None:
    """As the restricted level of pod security wants it, and more."""
    for each in objects(rendered(name)):
        if each["kind"] in WORKLOADS:
            pod, container = pod_of(each), container_of(each)
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["automountServiceAccountToken"] is False
            assert pod["enableServiceLinks"] is False
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.parametrize(
    ("settings", "group"), [((), 9010), (("--set", "servers[0].role=all,servers[0].pod.fsGroup=2000"), 2000)]
)
def test_the_group_of_the_volume_may_write_it(settings: tuple[str, ...], group: int) -> None:
    """Without it the volume is root's, and the server is not."""
    server = one(objects(run_helm(*template_words("sqlite"), *settings).stdout), "StatefulSet", "server")
    assert pod_of(server)["securityContext"]["fsGroup"] == group
    assert {"name": "data", "mountPath": "/var/lib/pinlater"} in container_of(server)["volumeMounts"]
    [claim] = server["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data"


def test_a_pod_has_ten_seconds_more_than_its_program_needs_to_stop() -> None:
    found = objects(rendered("everything"))
    server, images, mail = (one(found, "Deployment", name) for name in ("server", "images", "mail"))
    assert "drain_timeout_s=45" in container_of(server)["args"]
    assert pod_of(server)["terminationGracePeriodSeconds"] == 55
    assert "600s" in container_of(images)["args"]
    assert pod_of(images)["terminationGracePeriodSeconds"] == 610
    assert pod_of(mail)["terminationGracePeriodSeconds"] == 40


def test_without_autoscaling_there_is_nothing_of_keda() -> None:
    off = run_helm(*template_words("everything"), "--set", "autoscaling.enabled=false").stdout
    assert "keda" not in off.replace("kubernetes.io/metadata.name: keda", "")
    assert {each["kind"] for each in objects(rendered("everything"))} > set(KEDA_KINDS)


def test_a_scaled_pool_asks_for_its_queues_and_leaves_the_number_of_pods_to_keda() -> None:
    found = objects(rendered("roles"))
    images = one(found, "ScaledObject", "images")["spec"]
    [trigger] = images["triggers"]
    assert trigger["metadata"] == {
        "url": "http://jobs-pinlater-dequeue.default.svc:9999/demand?queue=thumbnails&queue=originals",
        "valueLocation": "slots",
        "targetValue": "4",
    }
    assert "4" in container_of(one(found, "Deployment", "images"))["args"]
    assert "replicas" not in one(found, "Deployment", "images")["spec"]


def test_an_unknown_demand_never_scales_down() -> None:
    """KEDA takes a fallback of 0 replicas for none, and then scales to 0, whatever the behaviour says."""
    found = objects(rendered("roles"))
    for name, least in (("images", 0), ("mail", 1)):
        spec = one(found, "ScaledObject", name)["spec"]
        assert spec["minReplicaCount"] == least
        assert spec["fallback"] == {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"}


def test_prometheus_can_say_the_demand_and_a_missing_series_is_an_error() -> None:
    words = ("autoscaling.prometheus=http://prometheus:9090", "autoscaling.prometheusLabels.namespace=jobs")
    text = run_helm(*template_words("roles"), "--set", ",".join(words)).stdout
    found = objects(text)
    for each in found:
        schemas.check(each, VERSIONS[-1])
    [trigger] = one(found, "ScaledObject", "images")["spec"]["triggers"]
    series = 'max by (queue) (pinlater_queue_slots_wanted{queue=~"thumbnails|originals",namespace="jobs"})'
    assert trigger["metadata"] == {
        "serverAddress": "http://prometheus:9090",
        "query": f"sum({series}) and count({series}) == 2",
        "threshold": "4",
        "ignoreNullValues": "false",
    }


def test_workers_of_servers_with_roles_enqueue_at_those_for_enqueues() -> None:
    env = {
        each["name"]: each.get("value")
        for each in container_of(one(objects(rendered("roles")), "Deployment", "images"))["env"]
    }
    assert env["PINLATER_SERVERS"] == "jobs-pinlater-dequeue:9010"
    assert env["PINLATER_ENQUEUE_SERVERS"] == "jobs-pinlater-enqueue:9010"


def test_a_node_drains_though_pods_are_not_ready() -> None:
    """As all are while the database is away."""
    budgets = [each for each in objects(rendered("everything")) if each["kind"] == "PodDisruptionBudget"]
    assert budgets
    assert {each["spec"]["unhealthyPodEvictionPolicy"] for each in budgets} == {"AlwaysAllow"}


def test_an_upgrade_of_the_chart_alone_restarts_no_pod() -> None:
    """Labels with its version are on the objects, not on the pods."""
    for each in objects(rendered("everything")):
        if each["kind"] in WORKLOADS:
            assert each["metadata"]["labels"].keys() > each["spec"]["template"]["metadata"]["labels"].keys()
            assert "helm.sh/chart" not in each["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("replica=2", "additional properties 'replica' not allowed"),
        ("pools[0].imag=x", "/pools/0': additional properties 'imag' not allowed"),
        ("pools[0].image=null", "/pools/0/image"),
        ("pools[0].queues=null", "/pools/0/queues"),
        ("pools[0].queues[0]=no-queue", "/pools/0/queues/0"),
        ("pools[0].concurrency=0", "/pools/0/concurrency"),
        (
            "pools[0].autoscaling.minReplicas=41",
            "pools.images.autoscaling.maxReplicas: 40 is less than minReplicas, 41",
        ),
        ("pools[0].name=mail", "pools: two are called mail"),
        ("servers[0].role=none", "/servers/0/role"),
        ("servers[0].role=dequeue", "servers: name the role all once, or the roles enqueue and dequeue once each"),
        ("store.kind=sqlite", "store.kind: sqlite has no url, shards and password"),
        ("store.url=mysql://u@h/d", "store.url: mysql wants either url or shards"),
        ("access.tokens=null", "access.tokens: servers listen on the network"),
        ("pools[1].token=null", "pools.mail.token: servers with tokens want one of the roles work and produce"),
        ("autoscaling.token=null", "autoscaling.token: servers with tokens want one of the role read"),
        ("settings.drain_timeout_s=5", "settings: drain_timeout_s follows from other values"),
        ("settings.http\\.host=127.0.0.1", "settings: http.host follows from other values"),
        ("store.url=mysql://u:secret@h/d", "/store/url"),
        ("autoscaling.prometheus=http://p:9090", "autoscaling.prometheusLabels: name the labels"),
        ("pools[0].volumes[0].name=tmp", "pools.images.volumes: the chart has one called tmp"),
        ("pools[0].env[0].name=PINLATER_SERVERS", "pools.images.env: PINLATER_SERVERS follows from other values"),
        (
            f"pools[0].queues={{{','.join(f'q{number}' for number in range(33))}}}",
            "pools.images.queues: autoscaling asks for 32 queues at most",
        ),
        ("console=null", "console"),
        ("store.volume=null", "volume"),
    ],
)
def test_wrong_values_are_refused_by_name(setting: str, named: str) -> None:
    done = run_helm(*template_words("everything"), "--set", setting, ok=False)
    assert done.returncode != 0
    assert named in done.stderr


@pytest.mark.parametrize(
    "settings",
    [
        ("--set-json", 'pools[1].env=[{"name": "PINLATER_TOKEN", "value": "t"}]'),
        ("--set", "settings.access\\.default_roles=work", "--set", "autoscaling.token=null"),
    ],
)
def test_a_pool_needs_no_token_from_a_secret_if_it_has_rights_without(settings: tuple[str, ...]) -> None:
    run_helm(*template_words("everything"), "--set", "pools[1].token=null", *settings)


def test_sqlite_has_one_server() -> None:
    for setting in ("servers[0].replicas=2", "servers[0].role=enqueue", "zookeeper.address=zk1:2181/pinlater"):
        done = run_helm(*template_words("sqlite"), "--set", setting, ok=False)
        assert (done.returncode != 0, setting.partition("[")[0].partition("=")[0] in done.stderr) == (True, True)


def test_the_page_shows_good_values(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/how-to/kubernetes.md").read_text()
    [values] = [block.text for block in blocks(page) if block.remarks.get("save") == "values.yaml"]
    (tmp_path / "values.yaml").write_text(values)
    found = objects(
        run_helm("template", RELEASE, CHART, "--kube-version", VERSIONS[0], "-f", tmp_path / "values.yaml").stdout
    )
    assert [each["spec"]["maxReplicaCount"] for each in found if each["kind"] == "ScaledObject"] == [40, 5]
    assert one(found, "Service", "server")["metadata"]["name"] in page


@pytest.mark.parametrize("release", ["pinlater", "a-release-whose-name-is-as-long-as-helm-allows-and-x"])
def test_a_name_of_any_length_makes_valid_names(release: str) -> None:
    words = [release if word == RELEASE else word for word in template_words("everything")]
    for each in objects(run_helm(*words, "--set", f"pools[0].name={'p' * 20}").stdout):
        assert len(each["metadata"]["name"]) <= 63
        assert each["metadata"]["name"].startswith(release[:28])
