"""A real API server on an etcd, with Kubernetes' controllers, and no nodes: pods are rows that the test marks as ready.

All listen on 127.0.0.1. `scripts/kubernetes-tools cluster` builds them.
"""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, Self, TypeVar

import yaml

from tests.databases.ports import free_port
from tests.kubernetes.helm import TOOLS, KubernetesObject, tool
from tests.tls.certificates import Authority

_START_S = 60.0
_WITHIN_S = 60.0
_STEP_S = 0.05
_TOKEN = "of-the-tests"
_PLURALS = {"NetworkPolicy": "networkpolicies"}
_CLUSTER_WIDE = ("Namespace", "PriorityClass", "CustomResourceDefinition", "APIService", "Node")
T = TypeVar("T")


class Refused(Exception):
    """The API server refused a request; the text is its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def eventually(look: Callable[[], T | None], within_s: float = _WITHIN_S) -> T:
    """What `look` finds, once it is anything that counts as true."""
    deadline = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < deadline, look
        time.sleep(_STEP_S)
    return found


def path_of(each: KubernetesObject, namespace: str) -> str:
    """Where the API server keeps objects of this kind."""
    kind, version = each["kind"], each["apiVersion"]
    plural = _PLURALS.get(kind, f"{kind.lower()}s" if not kind.endswith("ss") else f"{kind.lower()}es")
    group = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    return f"{group}/{plural}" if kind in _CLUSTER_WIDE else f"{group}/namespaces/{namespace}/{plural}"


class Cluster:
    """Use as `with Cluster(folder) as cluster`. `kubeconfig`: for helm and controllers, with all rights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.kubeconfig = folder / "kubeconfig"
        self._accounts = self.authority.sign("accounts")
        self._port = free_port()
        self._trust = ssl.create_default_context(cafile=str(self.authority.file))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        programs = {name: tool(name) for name in ("etcd", "kube-apiserver", "kube-controller-manager")}
        self._write_kubeconfig(self.kubeconfig)
        self._start_api_server(programs["etcd"], programs["kube-apiserver"])
        self._start_controllers(programs["kube-controller-manager"])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, words: Sequence[str | Path], environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Starts a program that ends with the cluster, and logs to a file with its name."""
        [program, *_] = words
        log = self._stack.enter_context((self.folder / f"{Path(program).name}.log").open("ab"))
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, cwd=self.folder)
        self._stack.callback(process.wait, 30)
        self._stack.callback(process.kill)
        return process

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """The answer. Raises Refused."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=30, context=self._trust)
        try:
            headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": kind}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        found = json.loads(said) if said.startswith(b"{") else {"message": said.decode()}
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise Refused(answer.status, str(found.get("message")))
        return found

    def create(self, each: KubernetesObject, namespace: str = "", query: str = "") -> Any:
        return self.call("POST", f"{path_of(each, namespace)}{query}", each)

    def get(self, each: KubernetesObject, namespace: str) -> Any | None:
        """The object as it is now; None if it is gone."""
        try:
            return self.call("GET", f"{path_of(each, namespace)}/{each['metadata']['name']}")
        except Refused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def lacks(self, each: KubernetesObject, namespace: str = "") -> bool:
        return self.get(each, namespace) is None

    def patch(self, path: str, change: object) -> None:
        self.call("PATCH", path, change, "application/merge-patch+json")

    def pods(self, namespace: str, component: str) -> list[Any]:
        """Those that are not about to go."""
        return [pod for pod in self.all_pods(namespace, component) if "deletionTimestamp" not in pod["metadata"]]

    def all_pods(self, namespace: str, component: str) -> list[Any]:
        selector = f"labelSelector=app.kubernetes.io/component={component}"
        return list(self.call("GET", f"/api/v1/namespaces/{namespace}/pods?{selector}")["items"])

    def evict(self, namespace: str, pod: str) -> None:
        """As a drain of its node does. Raises Refused if a budget says so."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        self.call("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", eviction)

    def evicts(self, namespace: str, pod: str) -> bool:
        try:
            self.evict(namespace, pod)
        except Refused:
            return False
        return True

    def scale(self, namespace: str, deployment: str, replicas: int) -> None:
        self.patch(
            f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}/scale", {"spec": {"replicas": replicas}}
        )

    def namespace(self, name: str) -> str:
        """A new one, in which only pods of the restricted level of pod security are admitted."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        eventually(
            lambda: self.get({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, name)
        )
        return name

    def install_keda_kinds(self) -> None:
        for file in sorted(next(TOOLS.glob("keda-[0-9]*")).glob("*.yaml")):
            definition = yaml.safe_load(file.read_text())
            self.create(definition)
            eventually(partial(self._is_established, definition))

    def _start_api_server(self, etcd: Path, api_server: Path) -> None:
        pair = self.authority.sign("127.0.0.1", "localhost")
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{_TOKEN},tests,tests,"system:masters"\n')
        clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.run(
            [
                etcd,
                f"--data-dir={self.folder / 'etcd'}",
                "--unsafe-no-fsync",
                "--log-level=error",
                f"--listen-client-urls={clients}",
                f"--advertise-client-urls={clients}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
            ]
        )
        self.run(
            [
                api_server,
                f"--etcd-servers={clients}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self._port}",
                f"--tls-cert-file={pair.certificate}",
                f"--tls-private-key-file={pair.key}",
                f"--token-auth-file={tokens}",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--endpoint-reconciler-type=none",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={self._accounts.certificate}",
                f"--service-account-signing-key-file={self._accounts.key}",
                f"--cert-dir={self.folder}",
                f"--requestheader-client-ca-file={self.authority.file}",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={pair.certificate}",
                f"--proxy-client-key-file={pair.key}",
            ]
        )
        eventually(self._answers, _START_S)

    def _start_controllers(self, controllers: Path) -> None:
        self.run(
            [
                controllers,
                f"--kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={free_port()}",
                f"--cert-dir={self.folder}",
                f"--service-account-private-key-file={self._accounts.key}",
                "--horizontal-pod-autoscaler-sync-period=1s",
            ]
        )

    def _is_established(self, definition: KubernetesObject) -> bool:
        found = self.get(definition, "") or {}
        conditions = found.get("status", {}).get("conditions") or []
        return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)

    def _answers(self) -> bool:
        try:
            self.call("GET", "/readyz")
        except (OSError, Refused):
            return False
        return True

    def kubeconfig_for(self, namespace: str) -> Path:
        """A file for a person who works in that namespace."""
        file = self.folder / f"kubeconfig-{namespace}"
        self._write_kubeconfig(file, namespace=namespace)
        return file

    def _write_kubeconfig(self, file: Path, **context: str) -> None:
        cluster = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": str(self.authority.file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": _TOKEN}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", **context}}],
        }
        file.write_text(yaml.safe_dump(config))


class PodCounts(NamedTuple):
    """How many pods a look found: those that are ready, and those that are not about to go. A ready one that is about to go is neither."""

    ready: int
    staying: int


class Kubelet:
    """Stands for a node: runs the pods of a namespace. Each is ready at once, and gone as soon as it is told to.

    `held`: new ones do not become ready while it is set. Unless `ends_pods`, those that were told to go stay until the end.
    `seen`: each look.
    """

    def __init__(self, cluster: Cluster, namespace: str, *, ends_pods: bool = True) -> None:
        self.held = Event()
        self.seen: list[PodCounts] = []
        self._cluster = cluster
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._ends_pods = ends_pods
        self._node: KubernetesObject = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace}}
        self._ended = Event()
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Self:
        self._cluster.create(self._node)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._cluster.call("DELETE", f"/api/v1/nodes/{self._namespace}")

    def ready(self, component: str) -> int:
        """How many pods of the component are ready now."""
        return sum(map(_is_ready, self._cluster.pods(self._namespace, component)))

    def _run(self) -> None:
        while not self._ended.wait(_STEP_S):
            pods = self._cluster.call("GET", self._path)["items"]
            self.seen.append(
                PodCounts(sum(map(_is_ready, pods)), sum("deletionTimestamp" not in pod["metadata"] for pod in pods))
            )
            for pod in pods:
                self._step(pod)

    def _step(self, pod: Any) -> None:
        path = f"{self._path}/{pod['metadata']['name']}"
        try:
            if "deletionTimestamp" in pod["metadata"]:
                if self._ends_pods:
                    self._cluster.call("DELETE", path, {"gracePeriodSeconds": 0})
            elif "nodeName" not in pod["spec"]:
                target = {"apiVersion": "v1", "kind": "Node", "name": self._namespace}
                binding = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": pod["metadata"]["name"]},
                    "target": target,
                }
                self._cluster.call("POST", f"{path}/binding", binding)
            elif not _is_ready(pod) and not self.held.is_set():
                ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "PodScheduled")]
                self._cluster.patch(f"{path}/status", {"status": {"phase": "Running", "conditions": ready}})
        except Refused as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions") or []
    return "deletionTimestamp" not in pod["metadata"] and any(
        (each["type"], each["status"]) == ("Ready", "True") for each in conditions
    )
