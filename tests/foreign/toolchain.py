"""What the clients in other languages are made with. Missing: the test is skipped, in CI it fails (`scripts/test-packages` installs).

The first run fetches the languages' libraries from their registries, pinned by `go.sum`, `package-lock.json` and `jars.sha256`;
later ones find them in those tools' caches.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

_DEADLINE_S = 270.0  # a first run fetches and compiles libraries


def need(*programs: str) -> None:
    """Skips where one of the programs is missing; CI must have them."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        message = f"not here: {', '.join(missing)} (scripts/test-packages installs them)"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def run(script: str, folder: Path, deadline_s: float = _DEADLINE_S) -> str:
    """What the shell lines print; fails with all that they said when one of them does."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n--- status {done.returncode}\n{done.stdout}{done.stderr}"
    return re.sub(r"\x1b\[\d*m", "", done.stdout)  # Debian's Maven resets colours unasked


def maven(goals: str, folder: Path) -> None:
    """Maven, which also compares with the registry's own checksums."""
    run(f"mvn --batch-mode --quiet --strict-checksums {goals}", folder)


def pinned_class_path(folder: Path) -> str:
    """The class path of the Maven project in `folder`; fails where a jar on it is not the one that its `jars.sha256` names."""
    listing = folder / "target" / "class-path"
    maven(f"org.apache.maven.plugins:maven-dependency-plugin:3.1.2:build-classpath -Dmdep.outputFile={listing}", folder)
    jars = [Path(name) for name in listing.read_text().strip().split(os.pathsep)]
    lines = (line.split("  ") for line in (folder / "jars.sha256").read_text().splitlines())
    pinned = {Path(name).name: digest for digest, name in lines}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars}
    strange = sorted(name for name, _ in found.items() ^ pinned.items())
    assert strange == [], f"not as jars.sha256 says: {strange}"
    return os.pathsep.join(map(str, jars))
