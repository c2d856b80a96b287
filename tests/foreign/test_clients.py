"""The example clients in other languages do what their README says, and the server has what they did."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.domain.job import JobState, UniqueScope
from pinlater.testing import RealServer
from tests.foreign.recorder import CallRecorder
from tests.foreign.toolchain import need, pinned_class_path, run
from tests.house.conftest import REPOSITORY
from tests.house.snippets import Block, blocks, missing_line

pytestmark = pytest.mark.foreign

CLIENTS = REPOSITORY / "examples" / "clients"
IDL = Path("src/pinlater/wire/pinlater.thrift")
PROGRAMS = {"go": ("go",), "java": ("javac", "mvn"), "node": ("node", "npm")}
HOUR_MS = 3_600_000


@pytest.fixture
def between(tmp_path: Path) -> Iterator[CallRecorder]:
    """A real server behind a recorder."""
    (tmp_path / "server").mkdir()
    with RealServer(tmp_path / "server") as server, CallRecorder(server.address) as recorder:
        yield recorder


def copied(language: str, to: Path) -> Path:
    """The example and the IDL as git has them, without what was made beside them, at their places in a folder `to`."""
    folder = to / "examples" / "clients" / language
    made = shutil.ignore_patterns("gen-nodejs", "node_modules", "target", "com", "pinlater")
    shutil.copytree(CLIENTS / language, folder, ignore=made)
    (to / IDL).parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / IDL, to / IDL)
    return folder


def first_block(language: str) -> Block:
    """What the README tells its reader to type, and what that prints."""
    return blocks((CLIENTS / language / "README.md").read_text())[0]


@pytest.mark.docs
@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", PROGRAMS)
def test_a_client_in_another_language_does_what_its_readme_says(
    language: str, tmp_path: Path, between: CallRecorder
) -> None:
    need("thrift", *PROGRAMS[language])
    folder = copied(language, tmp_path)
    block = first_block(language)
    if language == "java":
        pinned_class_path(folder)
    printed = run(block.text.replace("127.0.0.1:9010", between.address), folder).splitlines()
    word, *jobs = printed[0].split()
    assert (word, len(jobs)) == ("jobs", 3)
    assert printed[1:] == (block.prints or "").splitlines()[1:]
    check_what_was_sent(between)
    check_what_became_of_it(between.address, jobs, f"{language}-example")


@pytest.mark.docs
@pytest.mark.timeout(600)
def test_the_clients_print_the_same_when_they_run_again_in_any_order(tmp_path: Path) -> None:
    need("thrift", *(program for programs in PROGRAMS.values() for program in programs))
    folders = {language: copied(language, tmp_path / language) for language in PROGRAMS}
    languages = [*PROGRAMS] * 2
    random.shuffle(languages)
    (tmp_path / "server").mkdir()
    with RealServer(tmp_path / "server") as server:
        for language in languages:
            block = first_block(language)
            printed = run(block.text.replace("127.0.0.1:9010", server.address), folders[language])
            assert missing_line(block.prints or "", printed) is None, printed


def check_what_was_sent(between: CallRecorder) -> None:
    """Each field of a job arrived, from the language's own generated code."""
    first, again, _ = between.calls("enqueueJobs")
    job = first.arguments.request.jobs[0]
    due = job.run_after_ms
    assert (job.body, job.priority, job.attempts_allowed, job.custom_status) == (b"one\x00\xff", 1, 5, "queued")
    assert job.headers == {"content-type": "application/octet-stream", "pinlater-task": "resize"}
    assert (job.unique_scope, job.unique_for_ms) == (UniqueScope.TIME, 60_000)
    assert job.unique_key is not None
    assert job.unique_key.startswith("picture-")
    assert (job.claim_timeout_ms, job.expires_at_ms) == (120_000, due + HOUR_MS)
    assert first.arguments.request.request_key == again.arguments.request.request_key
    assert (first.arguments.request.repeated, again.arguments.request.repeated) == (None, True)
    assert between.calls("dequeueJobs")[0].arguments.request.wait_ms == 2_000


def check_what_became_of_it(address: str, jobs: list[str], source: str) -> None:
    """One is done, two has failed for good, three waits for its retry."""
    with Client(address) as client:
        found = client.lookup(jobs, bodies=True)
    one, two, three = (found[descriptor] for descriptor in jobs)
    assert (one.state, one.body, one.custom_status) == (JobState.SUCCEEDED, b"one\x00\xff", "queued, done")
    assert one.headers["pinlater-task"] == "resize"
    assert (two.state, two.body, two.attempts_remaining) == (JobState.FAILED, b"two, half done", 0)
    assert (two.error_type, two.error_text) == ("BadPicture", "it is empty")
    assert (three.state, three.attempts_remaining, three.attempts_allowed) == (JobState.PENDING, 1, 3)
    assert three.run_after_ms is not None
    assert three.run_after_ms > three.created_at_ms + HOUR_MS - 1
    first, second = three.attempts
    assert (first.outcome, first.error_type, first.error_text) == ("failed", "Timeout", "no answer")
    assert f":{source}:" in first.claimed_by
    assert (second.number, second.outcome) == (2, "failed")


def test_every_client_is_run_and_listed_and_prints_the_same() -> None:
    """All clients do the same steps; so a difference between languages is a fault of one of them."""
    folders = {path.name for path in CLIENTS.iterdir() if path.is_dir()}
    assert folders == set(PROGRAMS)
    listed = (CLIENTS / "README.md").read_text()
    assert [name for name in sorted(folders) if f"]({name}/README.md)" not in listed] == []
    assert len({first_block(name).prints for name in folders}) == 1


def test_the_page_on_other_languages_shows_the_readmes_lines() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "other-languages.md").read_text()
    shown = [block.text for block in blocks(page)]
    assert [name for name in PROGRAMS if f"cd examples/clients/{name}\n{first_block(name).text}" not in shown] == []
