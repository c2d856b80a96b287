"""Another build of ours: a checkout of the repository, for example a `git worktree` of an older commit. It runs in the same environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def environment_of(checkout: Path) -> Mapping[str, str]:
    """With it `python -m pinlater` runs the code of that checkout."""
    return {"PYTHONPATH": str(checkout / "src")}


def package_of(checkout: Path) -> Path:
    """Where `python -m pinlater` finds its code with this environment. Raises `subprocess.CalledProcessError` if it finds none."""
    said = subprocess.run(
        [sys.executable, "-c", "import pinlater; print(pinlater.__file__)"],
        env={**os.environ, **environment_of(checkout)},
        cwd=checkout,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return Path(said.strip()).parent
