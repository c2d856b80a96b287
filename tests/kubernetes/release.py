"""A release of the chart on a cluster."""

from __future__ import annotations

import os
from pathlib import Path

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.helm import CHART, RELEASE, VALUES, KubernetesObject, objects, run_helm


class Release:
    """Of the chart, in a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        # In the home directory, the cache would outlive the cluster, and serve another one on the same port.
        self._environment = {**os.environ, "KUBECACHEDIR": str(cluster.folder / "cache")}
        self._words = ("--kubeconfig", cluster.kubeconfig, "--namespace", namespace)

    def run(self, verb: str, *words: str | Path, ok: bool = True) -> str:
        """What helm printed, or its error."""
        done = run_helm(verb, RELEASE, *words, *self._words, environment=self._environment, ok=ok)
        return done.stdout if ok else done.stderr

    def apply(self, name: str, *settings: str, verb: str = "install", ok: bool = True) -> str:
        """Installs or upgrades with the value file of this name, and settings as for `--set`."""
        more = [word for setting in settings for word in ("--set", setting)]
        return self.run(verb, CHART, "-f", VALUES / f"{name}.yaml", *more, ok=ok)

    def objects(self) -> list[KubernetesObject]:
        """Those that helm takes for installed."""
        return objects(run_helm("get", "manifest", RELEASE, *self._words, environment=self._environment).stdout)
