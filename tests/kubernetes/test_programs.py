"""The programs take what the chart gives them, and answer the probes of their pods. Folders stand for volumes."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubernetes.helm import (
    container_of,
    objects,
    one,
    pod_of,
    rendered,
    run_helm,
    template_words,
)
from tests.kubernetes.mid_job import HERE, IMAGE, POOL, JobsOfAPod
from tests.kubernetes.pods_here import PodsHere, environment

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


def test_server_console_and_worker_answer_the_probes_of_their_pods(pods: PodsHere, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_WORKER)
    (tmp_path / "pool.yaml").write_text(_POOL)
    found = objects(run_helm(*template_words("sqlite"), "-f", tmp_path / "pool.yaml").stdout)
    server, console, worker = (
        one(found, "StatefulSet", "server"),
        one(found, "Deployment", "console"),
        one(found, "Deployment", "mail"),
    )
    for each, image in ((server, IMAGE), (console, IMAGE), (worker, {})):
        pods.start(each, image, HERE)
    for each in (server, console, worker):
        pods.wait_until_ready(each)
        assert pods.probe(each, "livenessProbe") == 200
        assert pods.probe(each, "startupProbe") == 200


def test_a_pod_that_goes_in_mid_job_ends_what_it_can_and_gives_the_rest_back_unspent(
    pods: PodsHere, tmp_path: Path
) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    found = objects(run_helm(*template_words("sqlite"), "-f", tmp_path / "pool.yaml").stdout)
    server, worker = one(found, "StatefulSet", "server"), one(found, "Deployment", "mail")
    jobs = JobsOfAPod(tmp_path, pods, server, worker)
    pods.tell_to_go(worker)
    jobs.let_short_one_end()
    assert pods.end(worker, pod_of(worker)["terminationGracePeriodSeconds"]) == 0
    jobs.check()


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
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            for setting in settings:
                assert f"{setting.partition('=')[0]} " in done.stdout
