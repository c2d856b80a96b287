"""What network policies admit, as Kubernetes defines it: for tests, since only nodes with a network of their own put them in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.kubernetes.helm import KubernetesObject, pod_of

WORKLOADS = ("Deployment", "StatefulSet")
OWN = {"kubernetes.io/metadata.name": "default"}
"""The labels of the namespace of the release."""


class LabelledPod(NamedTuple):
    """A pod by its labels and those of its namespace. `ports`: of its container, by name."""

    labels: Mapping[str, str]
    namespace: Mapping[str, str] = OWN
    ports: Mapping[str, int] = {}


def pod_made_by(workload: KubernetesObject) -> LabelledPod:
    """A pod of a Deployment or StatefulSet."""
    [container] = pod_of(workload)["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    return LabelledPod(workload["spec"]["template"]["metadata"]["labels"], ports=ports)


def applying(policies: Sequence[KubernetesObject], pod: LabelledPod) -> list[KubernetesObject]:
    """The policies of the release that choose the pod."""
    return [each for each in policies if _selects(each["spec"]["podSelector"], pod.labels)]


def admit(policies: Sequence[KubernetesObject], source: LabelledPod, target: LabelledPod, port: int) -> bool:
    """Whether a pod of the release takes connections of the other one at this port."""
    chosen = applying(policies, target)
    rules = [rule for each in chosen for rule in each["spec"].get("ingress") or []]
    return not chosen or any(_rule_admits(rule, source, target, port) for rule in rules)


def _rule_admits(rule: Mapping[str, Any], source: LabelledPod, target: LabelledPod, port: int) -> bool:
    ports = [target.ports.get(each["port"], each["port"]) for each in rule.get("ports", [])]
    return (not ports or port in ports) and any(_is_peer(peer, source) for peer in rule["from"])


def _is_peer(peer: Mapping[str, Any], source: LabelledPod) -> bool:
    """Without a selector of namespaces, pods of the policy's own namespace are meant."""
    namespaces = peer.get("namespaceSelector", {"matchLabels": OWN})
    return _selects(namespaces, source.namespace) and _selects(peer.get("podSelector") or {}, source.labels)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert not selector.keys() - {"matchLabels"}, "expressions are not evaluated here"
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items()
