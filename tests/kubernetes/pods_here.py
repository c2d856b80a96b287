"""Runs the containers of pods as processes of this machine, as a node would. Folders stand for volumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.databases.ports import free_port
from tests.kubernetes.helm import KubernetesObject, container_of

_READY_S = 60.0


class PodsHere:
    """Runs the containers in a folder, on ports that are free."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {port: free_port() for port in (9010, 9999, 9998, 8081)}
        self._replaced = {"0.0.0.0": "127.0.0.1", "/var/lib/pinlater": str(folder)} | {
            str(port): str(here) for port, here in self._ports.items()
        }

    @property
    def servers(self) -> str:
        """Where clients reach the server."""
        return f"127.0.0.1:{self._ports[9010]}"

    def start(self, each: KubernetesObject, image: Mapping[str, str], replaced: Mapping[str, str]) -> None:
        """`image`: the variables that its image has. `replaced`: texts of its arguments and variables, with what stands for them here."""
        container = container_of(each)
        words = [*container.get("command", ["pinlater"]), *container["args"]]
        assert words.pop(0) == "pinlater"
        given = {
            variable["name"]: "127.0.0.1" if "valueFrom" in variable else variable.get("value", "")
            for variable in container.get("env", [])
        }
        here = {**replaced, **self._replaced}
        process = subprocess.Popen(
            [sys.executable, "-m", "pinlater", *(_with(word, here) for word in words)],
            cwd=self._folder,
            env=environment()
            | {"PINLATER_THRIFT_PORT": str(self._ports[9010]), "PINLATER_HTTP_PORT": str(self._ports[9999])}
            | {name: _with(value, here) for name, value in {**image, **given}.items()},
        )
        self._processes[each["metadata"]["name"]] = process
        self._stack.callback(process.wait, 60)
        self._stack.callback(process.terminate)

    def tell_to_go(self, each: KubernetesObject) -> None:
        """SIGTERM, as a node begins."""
        assert "lifecycle" not in container_of(each), "a node runs such a hook first"
        self._processes[each["metadata"]["name"]].send_signal(signal.SIGTERM)

    def end(self, each: KubernetesObject, grace_s: float) -> int:
        """SIGKILL, once the grace is over. Returns the exit code, which is that of the program if it ended before."""
        process = self._processes[each["metadata"]["name"]]
        with suppress(subprocess.TimeoutExpired):
            return process.wait(grace_s)
        process.kill()
        return process.wait()

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


def environment() -> dict[str, str]:
    """That of this process, without settings of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}


def _with(text: str, replaced: Mapping[str, str]) -> str:
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text
