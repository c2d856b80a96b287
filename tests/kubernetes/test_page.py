"""The page "Run it on Kubernetes", followed step by step on a real API server.

Its commands run as they are written: `pinlater`, `kubectl`, which has the API server validate what it creates, and `helm`. There are no
nodes, so pods are marked as ready; the test looks for the secrets that a node would mount.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.house.reader import Reader
from tests.house.snippets import Block, blocks
from tests.kubernetes.cluster import Cluster, Kubelet, path_of
from tests.kubernetes.helm import REPOSITORY, KubernetesObject, tool
from tests.kubernetes.release import Release

pytestmark = pytest.mark.kubernetes
PAGE = blocks((REPOSITORY / "docs/how-to/kubernetes.md").read_text())
NOT_RUN = {"docker build": "needs Docker and a registry"}


def runs_here(block: Block) -> bool:
    return block.runs or block.remarks.get("not run") == "needs a cluster"


class ReaderAtCluster(Reader):
    """Has a checkout, helm, kubectl, the password of a database, and a namespace of the cluster."""

    def __init__(self, folder: Path, cluster: Cluster, namespace: str) -> None:
        super().__init__(folder)
        programs = folder / "bin"
        programs.mkdir()
        for name in ("helm", "kubectl"):
            (programs / name).symlink_to(tool(name))
        (folder / "deploy").symlink_to(REPOSITORY / "deploy")
        (folder / "mysql.password").write_text("secret")
        self.environment |= {
            "PATH": f"{programs}{os.pathsep}{self.environment['PATH']}",
            "KUBECONFIG": str(cluster.kubeconfig_for(namespace)),
            "KUBECACHEDIR": str(cluster.folder / "cache"),
        }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """With KEDA's kinds, as the page wants it."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Cluster(folder) as found:
        found.install_keda_kinds()
        yield found


def test_a_reader_who_follows_the_page_gets_what_it_says(cluster: Cluster, tmp_path: Path) -> None:
    namespace = cluster.namespace("shop")
    reader, release = ReaderAtCluster(tmp_path, cluster, namespace), Release(cluster, namespace)
    with Kubelet(cluster, namespace) as kubelet:
        for block in PAGE:
            if runs_here(block):
                reader.do(block)
        assert (kubelet.ready("server"), kubelet.ready("pool-mail"), kubelet.ready("console")) == (3, 1, 1)
    installed = release.objects()
    assert all(cluster.get(each, namespace) for each in installed)
    named = {pair for each in installed for pair in secrets_in(each)}
    assert len(named) == 5
    assert named <= keys_of_secrets(cluster, namespace)


def test_only_what_needs_docker_is_not_run() -> None:
    assert {
        block.text.partition(" -")[0]: block.remarks["not run"] for block in PAGE if not runs_here(block)
    } == NOT_RUN


def secrets_in(part: Any) -> Iterator[tuple[str, str]]:
    """The secrets and keys that a part of an object names."""
    if isinstance(part, list):
        for each in part:
            yield from secrets_in(each)
    elif isinstance(part, dict):
        for each in part.get("items", []) if "secretName" in part else []:
            yield part["secretName"], each["key"]
        for each in part.get("secretTargetRef", []):
            yield each["name"], each["key"]
        for each in part.values():
            yield from secrets_in(each)


def keys_of_secrets(cluster: Cluster, namespace: str) -> set[tuple[str, str]]:
    secret: KubernetesObject = {"apiVersion": "v1", "kind": "Secret"}
    found = cluster.call("GET", path_of(secret, namespace))["items"]
    return {(each["metadata"]["name"], key) for each in found for key in each.get("data", {})}
