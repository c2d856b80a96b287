"""The examples run, and print what they are there to show."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.conftest import REPOSITORY, need_thrift_compiler
from tests.house.reader import Reader
from tests.house.snippets import Block

EXAMPLES = REPOSITORY / "examples"
PRINTS = {
    "resize_images.py": "mail to ada@example.org\nthumbnail of 0.png\nthumbnail of 2.png\ngiven up: not an address: nobody\n",
    "import_in_steps.py": "first worker did [1, 2, 3]\nsecond worker did [4, 5]\n",
    "once_an_hour.py": "first machine: enqueued\nsecond machine: was there already\n",
    "original_worker.py": "succeeded 20, failed 0, retried 1\n",
    "plain_thrift.py": "claimed one two\noutcomes 0 0\n413 Queue not found: no_such_queue\n",
}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Somebody in an empty folder with a server running."""
    somebody = Reader(tmp_path)
    with somebody.server():
        yield somebody


@pytest.mark.docs
@pytest.mark.parametrize("name", PRINTS)
def test_an_example_runs_and_shows_its_point(name: str, reader: Reader) -> None:
    """Copied out of the repository, as its reader would."""
    if name == "plain_thrift.py":
        need_thrift_compiler()
        idl = REPOSITORY / "src/pinlater/wire/pinlater.thrift"
        subprocess.run(["thrift", "-nowarn", "--gen", "py", "-out", reader.folder, idl], check=True)
    shutil.copy(EXAMPLES / name, reader.folder)
    reader.do(Block("sh", f"python {name}\n", 0, prints=PRINTS[name]))


def test_every_example_is_run_and_listed() -> None:
    """An example that nobody runs is wrong sooner or later."""
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == set(PRINTS)
    listed = (EXAMPLES / "README.md").read_text()
    assert [name for name in sorted(files) if f"`{name}`" not in listed] == []
