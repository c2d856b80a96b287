"""With network policies, the pods of a release reach what its objects name, and others reach only what the values let them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.kubernetes.helm import KubernetesObject, container_of, objects, run_helm, template_words
from tests.kubernetes.policies import OWN, WORKLOADS, LabelledPod, admit, applying, pod_made_by

POD, OTHER = LabelledPod({"app": "shop"}), LabelledPod({"app": "shop"}, {"kubernetes.io/metadata.name": "other"})
KEDA, INGRESS = (LabelledPod({"app": name}, {"kubernetes.io/metadata.name": name}) for name in ("keda", "ingress"))


class Rendered(NamedTuple):
    """What helm makes of a value file with policies. `pods`: one of each workload, by its component."""

    all: list[KubernetesObject]
    policies: list[KubernetesObject]
    pods: dict[str, LabelledPod]

    def reached(self, address: str) -> Iterator[tuple[LabelledPod, int]]:
        """The pods and the port behind `service:port`."""
        host, _, port = address.partition(":")
        [service] = [
            each for each in self.all if (each["kind"], each["metadata"]["name"]) == ("Service", host.partition(".")[0])
        ]
        [name] = [each["targetPort"] for each in service["spec"]["ports"] if each["port"] == int(port)]
        found = [pod for pod in self.pods.values() if service["spec"]["selector"].items() <= pod.labels.items()]
        assert found, address
        return ((pod, pod.ports[name]) for pod in found)


@cache
def render(name: str) -> Rendered:
    found = objects(run_helm(*template_words(name), "--set", "networkPolicy.enabled=true").stdout)
    pods = [pod_made_by(each) for each in found if each["kind"] in WORKLOADS]
    policies = [each for each in found if each["kind"] == "NetworkPolicy"]
    return Rendered(found, policies, {pod.labels["app.kubernetes.io/component"]: pod for pod in pods})


names = pytest.mark.parametrize("name", ["all", "roles", "sqlite", "everything"])


@names
def test_each_pod_has_one_policy_and_none_bounds_where_it_connects_to(name: str) -> None:
    """So DNS, databases, ZooKeeper and what tasks call need no rule."""
    found = render(name)
    assert all(len(applying(found.policies, pod)) == 1 for pod in found.pods.values())
    assert {tuple(each["spec"]["policyTypes"]) for each in found.policies} == {("Ingress",)}


@names
def test_workers_and_the_dashboard_reach_the_servers_that_they_are_told_of_and_servers_each_other(name: str) -> None:
    found = render(name)
    for each in found.all:
        if each["kind"] in WORKLOADS:
            told = [
                variable["value"]
                for variable in container_of(each).get("env", [])
                if variable["name"] in {"PINLATER_SERVERS", "PINLATER_ENQUEUE_SERVERS"}
            ]
            assert told or "serve" in container_of(each)["args"]
            for address in told:
                assert all(admit(found.policies, pod_made_by(each), pod, port) for pod, port in found.reached(address))
    servers = [pod for pod in found.pods.values() if "thrift" in pod.ports]
    any_port = 34_567
    assert all(admit(found.policies, source, target, any_port) for source in servers for target in servers)


@pytest.mark.parametrize("name", ["roles", "everything"])
def test_keda_reaches_the_demand_that_it_asks_for_and_prometheus_all_metrics(name: str) -> None:
    found = render(name)
    asked = [
        urlsplit(trigger["metadata"]["url"]).netloc
        for each in found.all
        if each["kind"] == "ScaledObject"
        for trigger in each["spec"]["triggers"]
    ]
    assert asked
    assert all(admit(found.policies, KEDA, pod, port) for address in asked for pod, port in found.reached(address))
    metrics = [pod for component, pod in found.pods.items() if component != "console"]
    assert all(admit(found.policies, KEDA, pod, pod.ports.get("metrics", 9999)) for pod in metrics)


def test_others_reach_only_what_the_values_let_them() -> None:
    found = render("everything")
    reached = {
        (who, component, name)
        for who, source in {"client": POD, "other": OTHER, "keda": KEDA, "ingress": INGRESS}.items()
        for component, pod in found.pods.items()
        for name, port in pod.ports.items()
        if admit(found.policies, source, pod, port)
    }
    assert reached == {
        ("client", "server", "thrift"),
        ("ingress", "console", "http"),
        ("keda", "server", "http"),
        ("keda", "pool-images", "metrics"),
        ("keda", "pool-mail", "metrics"),
    }


def test_pods_of_another_release_are_others() -> None:
    found = render("everything")
    [server] = [pod for component, pod in found.pods.items() if component == "server"]
    another = server._replace(labels={**server.labels, "app.kubernetes.io/instance": "other-jobs"}, namespace=OWN)
    assert not admit(found.policies, another, server, server.ports["http"])
