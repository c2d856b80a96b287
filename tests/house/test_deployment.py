"""The systemd unit and the Dockerfile hold together with the rest of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest


@pytest.fixture
def unit(repository: Path) -> str:
    return (repository / "deploy/pinlater.service").read_text()


@pytest.fixture
def dockerfile(repository: Path) -> str:
    return (repository / "deploy/Dockerfile").read_text()


def bases(dockerfile: str) -> list[str]:
    """The images that its stages begin with."""
    return [base.partition(" ")[0] for base in re.findall(r"^FROM (.+)$", dockerfile, re.MULTILINE)]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(unit: str, tmp_path: Path) -> None:
    """With a program that is there, since ours is in /opt only on the operator's machine."""
    copy = tmp_path / "pinlater.service"
    copy.write_text(unit.replace("/opt/pinlater/bin/pinlater", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_gives_the_server_time_to_drain_and_no_privilege(unit: str) -> None:
    assert "KillSignal=SIGTERM" in unit
    assert "CapabilityBoundingSet=\n" in unit
    assert "NoNewPrivileges=yes" in unit
    assert "ProtectSystem=strict" in unit


def test_the_unit_restarts_without_a_limit(unit: str) -> None:
    """A limit would leave the service down after a few quick failures."""
    section = unit.partition("[Unit]")[2].partition("[Service]")[0]
    assert "StartLimitIntervalSec=0\n" in section
    assert "RestartSec=1\n" in unit


def test_the_unit_and_the_image_run_as_a_user_whose_group_can_be_let_read_a_shard_file(
    unit: str, dockerfile: str
) -> None:
    """The group of a dynamic user has no number before it runs, and the image's would be any that is free."""
    assert "\nUser=pinlater\nGroup=pinlater\n" in unit
    assert "DynamicUser" not in unit
    assert "groupadd --system --gid 9010 pinlater" in dockerfile
    assert "useradd --system --uid 9010 --gid 9010 " in dockerfile


def test_the_units_settings_file_is_one_that_the_server_takes(repository: Path) -> None:
    from pinlater.server.config.schema import keys

    assert set(tomllib.loads((repository / "deploy/pinlater.toml").read_text())) <= set(keys())


def test_the_image_runs_as_its_own_user_and_has_a_health_check(dockerfile: str) -> None:
    last = dockerfile.rpartition("\nFROM ")[2]
    assert re.search(r"^USER (?!root)\w+$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last


def test_the_image_is_built_from_files_that_exist(dockerfile: str, repository: Path) -> None:
    allowed = {line[1:] for line in (repository / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE) for name in line.split()[:-1]
    ]
    assert copied
    assert [name for name in copied if name not in allowed or not (repository / name).exists()] == []


def test_the_image_names_no_registry(dockerfile: str) -> None:
    """The operator who builds it decides where images come from."""
    assert all(base.startswith("python:") for base in bases(dockerfile))


def test_the_image_is_built_from_one_exact_version(dockerfile: str) -> None:
    """A tag such as 3.11-slim names another Python, and another Debian, from month to month."""
    [base] = set(bases(dockerfile))
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)


def test_the_image_can_use_every_store(dockerfile: str, repository: Path) -> None:
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"--extra (\w+)", dockerfile)) == {name for name, packages in extras.items() if packages}


def test_uv_has_one_version(dockerfile: str, repository: Path) -> None:
    pinned = re.search(r"^uv_version=(\S+)$", (repository / "scripts/install").read_text(), re.MULTILINE)
    assert pinned is not None
    assert f"uv=={pinned[1]} " in dockerfile
