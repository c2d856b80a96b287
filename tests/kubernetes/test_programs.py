"""The programs take what the chart gives them, and answer the probes of their pods. Folders stand for volumes."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.databases.ports import free_port
from tests.house.containers import Image
from tests.kubernetes.helm import (
    REPOSITORY,
    KubernetesObject,
    container_of,
    objects,
    one,
    rendered,
    run_helm,
    template_words,
)

_READY_S = 60.0
_WORKER = """
from pinlater import Worker

worker = Worker()


@worker.task("mail")
def send() -> None: ...
"""
_POOL = """
pools:
  - {name: mail, queues: [mail], image: shop, command: [pinlater, worker, "shop:worker"], concurrency: 2}
console:
  trustedProxies: [127.0.0.1]
"""


class PodsHere:
    """Runs the containers of pods as processes, in a folder, on ports that are free."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._ports = {port: free_port() for port in (9010, 9999, 9998, 8081)}
        self._replaced = {"0.0.0.0": "127.0.0.1", "/var/lib/pinlater": str(folder)} | {
            str(port): str(here) for port, here in self._ports.items()
        }

    def start(self, each: KubernetesObject, image: Mapping[str, str], replaced: Mapping[str, str]) -> None:
        """`image`: the variables that its image has. `replaced`: texts of its arguments and variables, with what stands for them here."""
        container = container_of(each)
        words = [*container.get("command", ["pinlater"]), *container["args"]]
        assert words.pop(0) == "pinlater"
        given = {variable["name"]: variable.get("value", "127.0.0.1") for variable in container.get("env", [])}
        here = {**replaced, **self._replaced}
        process = subprocess.Popen(
            [sys.executable, "-m", "pinlater", *(_with(word, here) for word in words)],
            cwd=self._folder,
            env=_environment()
            | {"PINLATER_THRIFT_PORT": str(self._ports[9010]), "PINLATER_HTTP_PORT": str(self._ports[9999])}
            | {name: _with(value, here) for name, value in {**image, **given}.items()},
        )
        self._stack.callback(process.wait, 60)
        self._stack.callback(process.terminate)

    def probe(self, each: KubernetesObject, kind: str) -> int:
        """The status of the answer."""
        container = container_of(each)
        asked = container[kind]["httpGet"]
        [port] = [self._ports[one["containerPort"]] for one in container["ports"] if one["name"] == asked["port"]]
        headers = {header["name"]: header["value"] for header in asked.get("httpHeaders", [])}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{asked['path']}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0

    def wait_until_ready(self, each: KubernetesObject) -> None:
        deadline = time.monotonic() + _READY_S
        while (status := self.probe(each, "readinessProbe")) != 200:
            assert time.monotonic() < deadline, (each["metadata"]["name"], status)
            time.sleep(0.05)

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[PodsHere]:
    found = PodsHere(tmp_path)
    yield found
    found.stop()


def _environment() -> dict[str, str]:
    """That of this process, without settings of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}


def _with(text: str, replaced: Mapping[str, str]) -> str:
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text


def test_server_console_and_worker_answer_the_probes_of_their_pods(pods: PodsHere, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_WORKER)
    (tmp_path / "pool.yaml").write_text(_POOL)
    found = objects(run_helm(*template_words("sqlite"), "-f", tmp_path / "pool.yaml").stdout)
    own = Image.of((REPOSITORY / "deploy/Dockerfile").read_text()).environment
    server, console, worker = (
        one(found, "StatefulSet", "server"),
        one(found, "Deployment", "console"),
        one(found, "Deployment", "mail"),
    )
    replaced = {"jobs-pinlater-server:": "127.0.0.1:"}
    for each, image in ((server, own), (console, own), (worker, {})):
        pods.start(each, image, replaced)
    for each in (server, console, worker):
        pods.wait_until_ready(each)
        assert pods.probe(each, "livenessProbe") == 200
        assert pods.probe(each, "startupProbe") == 200


@pytest.mark.parametrize("name", ["all", "roles", "everything"])
def test_the_server_accepts_each_setting(name: str, tmp_path: Path) -> None:
    files = {
        "shards.json": json.dumps({"1": {"master": {"host": "db.example", "port": 3306}}}),
        "password": "secret",
        "ca.pem": "",
    }
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    for each in objects(rendered(name)):
        if each["kind"] == "Deployment" and "serve" in (words := container_of(each)["args"]):
            here = [re.sub(r"/etc/pinlater/[^/]+", str(tmp_path), word) for word in words]
            pairs = list(itertools.pairwise(here))
            settings = [value for word, value in pairs if word == "--set"]
            [store] = [value for word, value in pairs if word == "--store"]
            done = subprocess.run(
                [sys.executable, "-m", "pinlater", "server", "settings", "--store", store]
                + [word for value in settings for word in ("--set", value)],
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            for setting in settings:
                assert f"{setting.partition('=')[0]} " in done.stdout
