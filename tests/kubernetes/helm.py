"""helm and what it makes of the chart, as `scripts/kubernetes-tools` has laid it into .venv.

`python -m tests.kubernetes.helm` records the golden files anew.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy/helm/pinlater"
TOOLS = REPOSITORY / ".venv/kubernetes-tools"
VALUES = Path(__file__).with_name("values")
GOLDEN = Path(__file__).with_name("golden")
NAMES = sorted(path.stem for path in VALUES.glob("*.yaml"))
# The oldest one of the chart, one of between, and the newest one whose schemas are there.
VERSIONS = ("1.31", "1.34", "1.37")
RELEASE = "jobs"
KubernetesObject = dict[str, Any]


def tool(name: str) -> Path:
    """A program of this name, whatever its version. Skips the test where it is not built, in CI too, since it needs Go."""
    found = sorted(TOOLS.glob(f"{name}-[0-9]*"))
    if not found:
        pytest.skip(f"no {name}: scripts/kubernetes-tools builds it with Go")
    return found[-1]


def run_helm(
    *arguments: str | Path, environment: Mapping[str, str] | None = None, ok: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [tool("helm"), *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 or not ok, done.stderr
    return done


def template_words(name: str) -> Sequence[str | Path]:
    return ["template", RELEASE, CHART, "--kube-version", VERSIONS[-1], "-f", VALUES / f"{name}.yaml"]


@cache
def rendered(name: str) -> str:
    """What helm makes of these values, once in a run."""
    return run_helm(*template_words(name)).stdout


def objects(text: str) -> list[KubernetesObject]:
    return [each for each in yaml.safe_load_all(text) if each]


def one(found: Sequence[KubernetesObject], kind: str, name: str) -> KubernetesObject:
    """The one of this kind whose name ends so."""
    [match] = [each for each in found if each["kind"] == kind and each["metadata"]["name"].endswith(name)]
    return match


def pod_of(each: KubernetesObject) -> KubernetesObject:
    """The spec of the pods of a Deployment or StatefulSet."""
    pod: KubernetesObject = each["spec"]["template"]["spec"]
    return pod


def container_of(each: KubernetesObject) -> KubernetesObject:
    [container] = pod_of(each)["containers"]
    return dict(container)


if __name__ == "__main__":
    for value_file in NAMES:
        (GOLDEN / f"{value_file}.yaml").write_text(rendered(value_file))
