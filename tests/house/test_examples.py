"""The examples run, and print what they are there to show."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.databases.ports import free_port
from tests.house.conftest import REPOSITORY, need_thrift_compiler
from tests.house.reader import Reader
from tests.house.snippets import Block, blocks
from tests.house.typing_check import assert_types_hold

EXAMPLES = REPOSITORY / "examples"
IDL = REPOSITORY / "src/pinlater/wire/pinlater.thrift"
PRINTS = {
    "resize_images.py": (
        "mail to ada@example.org\nthumbnail of 0.png, 200 wide\nthumbnail of 2.png, 200 wide\n"
        "given up: not an address: example.org\n"
    ),
    "import_in_steps.py": "first worker did [1, 2, 3]\nsecond worker did [4, 5]\n",
    "once_an_hour.py": "first machine: enqueued\nsecond machine: was there already\n",
    "original_worker.py": "succeeded 20, failed attempts 1\n",
    "middleware_prometheus.py": "succeeded 2.0\nfailed 1.0\ntimed 3.0\n",
    "middleware_errors.py": "ValueError: the card has expired task=charge attempt=3\n",
    "plain_thrift.py": "claimed one two\noutcomes 0 0\n413 Queue not found: no_such_queue\n",
}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader in an empty folder, with a server."""
    reader = Reader(tmp_path)
    with reader.server():
        yield reader


@pytest.mark.docs
@pytest.mark.parametrize("name", PRINTS)
def test_an_example_runs_and_shows_its_point(name: str, reader: Reader) -> None:
    prepare(name, reader)
    reader.do(Block("sh", f"python {name}\n", 0, prints=PRINTS[name]))


def prepare(name: str, reader: Reader) -> None:
    """Copies the example into the reader's folder, with the generated code that it needs."""
    if name == "plain_thrift.py":
        need_thrift_compiler()
        subprocess.run(["thrift", "-nowarn", "--gen", "py", "-out", reader.folder, IDL], check=True)
    shutil.copy(EXAMPLES / name, reader.folder)


def test_the_plain_client_without_its_generated_code_says_how_to_generate_it(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "plain_thrift.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "plain_thrift.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    command = f"thrift -nowarn --gen py -out examples {IDL.relative_to(REPOSITORY)}"
    assert (done.returncode, done.stderr) == (
        1,
        f"No module named 'thrift_libs'. Generate the code first, in the root of the checkout: {command}\n",
    )


@pytest.mark.docs
@pytest.mark.timeout(300)
def test_the_examples_print_the_same_when_they_run_again_in_any_order(reader: Reader) -> None:
    names = [name for name in PRINTS if name != "plain_thrift.py" or shutil.which("thrift")] * 2
    random.shuffle(names)
    for name in names:
        prepare(name, reader)
        reader.do(Block("sh", f"python {name}\n", 0, prints=PRINTS[name]))


class Visitor:
    """An HTTP client that can wait for a web server to start."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Status and answer of a GET, or a POST where there is a body; status 0 if nothing listens yet."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {}
        except urllib.error.URLError:
            return 0, {}

    def wait_until(self, path: str, state: str) -> None:
        """Returns once what is at `path` is in that state."""
        deadline = time.monotonic() + 60
        while (seen := self.ask(path)[1].get("state")) != state:
            assert time.monotonic() < deadline, f"{path} is {seen}"
            time.sleep(0.05)


def copied(name: str, tmp_path: Path) -> Reader:
    """A reader in a copy of that folder of examples."""
    shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return Reader(tmp_path / name)


def request_of_page(path: str, port: int) -> str:
    """The command of the page with which a reader tries the example, for a server at that port."""
    page = (REPOSITORY / "docs/how-to/web.md").read_text()
    [command] = [
        block.text for block in blocks(page) if block.text.startswith("curl") and block.text.endswith(f":8000{path}\n")
    ]
    return command.replace(":8000", f":{port}")


@pytest.mark.docs
@pytest.mark.timeout(300)
def test_fastapi_enqueues_in_a_request_and_a_worker_beside_it_does_the_work(tmp_path: Path) -> None:
    """In coroutines and in plain functions; a second click is no second job; the visitor sees no error when a server is away.

    The same again on the same store.
    """
    reader, port = copied("web_fastapi", tmp_path), free_port()
    for _ in range(2):
        visit_fastapi(reader, port)


def visit_fastapi(reader: Reader, port: int) -> None:
    """Starts the example, uses it as a visitor does, and stops it."""
    visitor = Visitor(port)
    ada = {"mail": "ada@example.org", "name": "Ada"}
    with ExitStack() as running:
        with reader.server():
            running.enter_context(reader.beside(f"uvicorn --port {port} app:app", "Uvicorn running"))
            reader.do(Block("sh", request_of_page("/signups", port), 0, prints='{"job":"…","new":true}\n'))
            status, first = visitor.ask("/signups", ada)
            assert status == 202
            assert visitor.ask("/signups", ada)[1] == {"job": first["job"], "new": False}
            status, report = visitor.ask("/reports/2026-11", {})
            assert status == 202
            with reader.beside("pinlater worker tasks:worker", "welcome Ada"):
                visitor.wait_until(f"/jobs/{first['job']}", "SUCCEEDED")
                visitor.wait_until(f"/jobs/{report['job']}", "SUCCEEDED")
            assert visitor.ask("/jobs/mails:s1:p1:1")[0] == 404
            assert visitor.ask("/signups", {"name": "without a mail"})[0] == 422
        assert visitor.ask("/signups", ada)[0] == 503


@pytest.mark.docs
def test_the_test_of_the_fastapi_example_passes(tmp_path: Path) -> None:
    """It needs no server: its clients are the in-process service's."""
    reader = copied("web_fastapi", tmp_path)
    reader.do(Block("sh", "pytest -q -p no:cacheprovider\n", 0, prints="…1 passed…\n"))


@pytest.mark.docs
@pytest.mark.timeout(300)
def test_djangos_orders_take_their_jobs_along_through_an_outbox(tmp_path: Path) -> None:
    """Ordered while no job service is there, shipped once it is; an order that was rolled back is never shipped.

    An emptied database gives the ids of its rows again: they are new jobs all the same. The same again on the same store and database.
    """
    reader, port = copied("web_django", tmp_path), free_port()
    visit_django(reader, port, first_order=1, shipped_before=0)
    visit_django(reader, port, first_order=2, shipped_before=3)


def visit_django(reader: Reader, port: int, first_order: int, shipped_before: int) -> None:
    """Starts the example, orders three things, and stops it. The last order has the number 1."""
    visitor, second_order = Visitor(port), first_order + 1
    reader.do(Block("sh", "python manage.py migrate --run-syncdb\n", 0))
    with ExitStack() as running:
        running.enter_context(reader.beside(f"python manage.py runserver --noreload {port}", "Starting development"))
        visitor.wait_until("/health", "up")
        reader.do(Block("sh", request_of_page("/orders", port), 0, prints=f'{{"order": {first_order}}}\n'))
        assert visitor.ask("/orders", {"item": "unicorn"})[0] == 500
        assert visitor.ask("/orders", {"item": "pears"}) == (202, {"order": second_order})
        running.enter_context(reader.server())
        reader.do(Block("sh", "pinlater queue create orders\npinlater queue create outbox\n", 0))
        running.enter_context(reader.beside("pinlater worker shop.tasks:worker", f"shipped: {second_order}"))
        visitor.wait_until(f"/orders/{first_order}", "shipped")
        visitor.wait_until(f"/orders/{second_order}", "shipped")
        succeeded = f'…"succeeded": {shipped_before + 2}…\n'
        reader.do(Block("sh", "pinlater queue stats orders --json\n", 0, prints=succeeded))
        reader.do(Block("sh", "python manage.py flush --no-input\n", 0))  # the database gives its ids once more
        assert visitor.ask("/orders", {"item": "figs"}) == (202, {"order": 1})
        visitor.wait_until("/orders/1", "shipped")


@pytest.mark.docs
@pytest.mark.parametrize("name", ["web_fastapi", "web_django"])
def test_the_types_of_a_web_example_hold(name: str, tmp_path: Path) -> None:
    reader = copied(name, tmp_path)
    assert_types_hold(sorted(reader.folder.rglob("*.py")), reader.folder)


@pytest.mark.docs
def test_the_types_of_the_examples_hold(tmp_path: Path) -> None:
    """But for the one on code that a Thrift compiler makes."""
    assert_types_hold([EXAMPLES / name for name in PRINTS if name != "plain_thrift.py"], tmp_path)


def test_every_example_is_run_and_listed() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == set(PRINTS)
    listed = (EXAMPLES / "README.md").read_text()
    assert [name for name in sorted(files) if f"`{name}`" not in listed] == []
