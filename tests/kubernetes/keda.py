"""KEDA's operator and adapter on a cluster, an endpoint that they take for our servers, and a Prometheus that these may ask instead."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import SplitResult, urlsplit

from tests.databases.ports import free_port
from tests.kubernetes.cluster import Cluster, eventually
from tests.kubernetes.helm import KubernetesObject, tool

_NAMESPACE = "keda"
_ADAPTER = "keda-metrics-apiserver"
_GROUP = "external.metrics.k8s.io"


class Demand:
    """Answers each GET as a server answers `/demand`: with `slots`, or with `status` if that is another than 200; not at all if it is 0.

    `server`: a real one of ours, or a Prometheus, that answers instead, on this port.
    `asked`: the URLs. KEDA calls it as an HTTP proxy, so they are those that the chart gives KEDA.
    """

    def __init__(self) -> None:
        self.slots = 0
        self.status: int = HTTPStatus.OK
        self.server: int | None = None
        self.asked: list[str] = []
        demand = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                demand.asked.append(self.path)
                status, body = demand.answer(urlsplit(self.path))
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)

    def answer(self, url: SplitResult) -> tuple[int, bytes]:
        """The status and the body of the answer to a GET."""
        if self.server is None:
            return self.status, json.dumps({"slots": self.slots, "queues": {}}).encode()
        connection = HTTPConnection("127.0.0.1", self.server, timeout=10)
        with closing(connection):
            connection.request("GET", f"{url.path}?{url.query}")
            answer = connection.getresponse()
            return answer.status, answer.read()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def polls(self, queue: str) -> int:
        """How often it was asked for the queue."""
        return sum(queue in url for url in list(self.asked))

    def wait_for_polls(self, queue: str, count: int) -> None:
        """Until it was asked that often from now on."""
        wanted = self.polls(queue) + count
        eventually(lambda: self.polls(queue) >= wanted)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def start_prometheus(cluster: Cluster, servers: Mapping[str, int]) -> int:
    """The port of one that ends with the cluster, and reads the metrics of servers each second. `servers`: their ports, by namespace."""
    folder, port = cluster.folder / "prometheus", free_port()
    folder.mkdir()
    targets = [
        {"targets": [f"127.0.0.1:{server}"], "labels": {"namespace": namespace}}
        for namespace, server in servers.items()
    ]
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "pinlater", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    cluster.run(
        [
            tool("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
    )
    return port


def start_keda(cluster: Cluster, demand: Demand) -> None:
    """The programs end with the cluster, which has KEDA's kinds. All their HTTP goes to `demand`."""
    operator, adapter = tool("keda-operator"), tool("keda-adapter")
    certificates = cluster.folder / "keda"
    certificates.mkdir()
    pair = cluster.authority.sign("localhost", f"{_ADAPTER}.{_NAMESPACE}.svc")
    for source, name in ((pair.certificate, "tls.crt"), (pair.key, "tls.key"), (cluster.authority.file, "ca.crt")):
        shutil.copy(source, certificates / name)
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.kubeconfig),
        "POD_NAMESPACE": _NAMESPACE,
        "WATCH_NAMESPACE": "",
        "KEDA_CLUSTER_OBJECT_NAMESPACE": _NAMESPACE,
        "HTTP_PROXY": demand.url,
    }
    metrics, port = free_port(), free_port()
    cluster.run(
        [
            operator,
            f"--cert-dir={certificates}",
            f"--metrics-service-bind-address=127.0.0.1:{metrics}",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--enable-prometheus-metrics=false",
        ],
        environment,
    )
    cluster.run(
        [
            adapter,
            f"--cert-dir={certificates}",
            f"--tls-cert-file={certificates / 'tls.crt'}",
            f"--tls-private-key-file={certificates / 'tls.key'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--port=0",
            f"--metrics-service-address=localhost:{metrics}",
            *(f"--{use}-kubeconfig={cluster.kubeconfig}" for use in ("lister", "authentication", "authorization")),
        ],
        environment,
    )
    _announce_adapter(cluster, port)


def _announce_adapter(cluster: Cluster, port: int) -> None:
    """The API server passes requests for external metrics on to the adapter."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _ADAPTER},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    cluster.create(service, _NAMESPACE)
    announced: KubernetesObject = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": base64.b64encode(cluster.authority.file.read_bytes()).decode(),
            "service": {"name": _ADAPTER, "namespace": _NAMESPACE, "port": port},
        },
    }
    cluster.create(announced)
    eventually(lambda: _is_available(cluster, announced))


def _is_available(cluster: Cluster, announced: KubernetesObject) -> bool:
    conditions = (cluster.get(announced, "") or {}).get("status", {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)
