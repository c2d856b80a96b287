"""A class name of the code means one thing, and so does one of tests and benchmarks that several files use.

A leading underscore makes no other name of it: `Queue` and `_Queue` are one name.
Generated code has the names of the wire, which are not ours to choose.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCES = Path("src/pinlater")
GENERATED = Path("wire/generated")
STORES = Path("server/storage")
TESTS = ("tests", "bench")
# Private words of former code that prose needs; language.py knows the others, and what to write instead.
PRIVATE_WORDS = {"Line", "Others", "Place", "Spread", "Stops", "Watch", "Woken"}

# A store imports no other one, so each has a class of its own for the same role; some implement a protocol of the same name.
ONE_FOR_EACH_STORE = {
    "Batch": "what one call inserts",
    "Changes": "the jobs of one call and what becomes of them; Redis also makes its commands of them",
    "Counter": "a protocol of the relational stores, and what each of them counts of one queue and priority",
    "Membership": "the lease of a slot, in the stores that servers share",
    "OpenOrder": "one claim order while it is being filled",
    "QueueEntry": "a protocol of the relational stores, and what each of them remembers of a queue",
    "Readers": "a bounded number of connections for reading",
    "Share": "what one dequeue call gets of a joint claim",
    "Stats": "the figures of a shard on a database server",
    "Transaction": "what the statements of one call go through",
    "Writer": "the calls of a shard that change something, one after the other",
}

# Names with two meanings that are still to be told apart. The list may only become shorter.
NOT_YET_TOLD_APART = {"Caller", "Draining", "Level", "Progress"}


def _modules_of_classes(root: Path, folders: Sequence[str] = (".",)) -> dict[str, list[Path]]:
    """The modules of each class name without its underscore, relative to `root`."""
    modules: dict[str, list[Path]] = {}
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        module = path.relative_to(root)
        if not module.is_relative_to(GENERATED):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    modules.setdefault(node.name.lstrip("_"), []).append(module)
    return modules


def _twice(sources: Path) -> dict[str, list[Path]]:
    """The modules of each class name that occurs more than once, relative to `sources`."""
    return {name: where for name, where in _modules_of_classes(sources).items() if len(where) > 1}


def _with_two_meanings_in_tests(repository: Path) -> dict[str, list[str]]:
    """The names that a module for several tests gives to a class, and that another class has. Two tests may have a private one each."""
    return {
        name: [str(module) for module in modules]
        for name, modules in _modules_of_classes(repository, TESTS).items()
        if len(modules) > 1 and not all(module.name.startswith("test_") for module in modules)
    }


def _one_for_each_store(modules: list[Path]) -> bool:
    """Whether all are in stores, or shared by stores, and no two in the same one."""
    in_stores = all(module.is_relative_to(STORES) for module in modules)
    return in_stores and max(Counter(module.parent for module in modules).values()) == 1


def _with_two_meanings(sources: Path) -> dict[str, list[str]]:
    return {
        name: [str(module) for module in modules]
        for name, modules in _twice(sources).items()
        if name not in ONE_FOR_EACH_STORE or not _one_for_each_store(modules)
    }


def test_no_class_name_is_used_twice_but_for_one_role_in_several_stores(repository: Path) -> None:
    """Name the class after what it is: `WorkerHealth` and `ShardHealth`, rather than two of the name `Health`."""
    assert set(_with_two_meanings(repository / SOURCES)) == NOT_YET_TOLD_APART


def test_a_class_that_several_tests_use_has_a_name_of_its_own(repository: Path) -> None:
    assert _with_two_meanings_in_tests(repository) == {}


def test_no_class_of_tests_is_named_by_a_private_word(repository: Path) -> None:
    assert PRIVATE_WORDS & _modules_of_classes(repository, TESTS).keys() == set()


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("tests/faults/load.py", "bench/load.py", True),
        ("tests/faults/load.py", "tests/redis/test_durability.py", True),
        ("tests/conftest.py", "tests/redis/test_durability.py", True),
        ("tests/mysql/test_durability.py", "tests/redis/test_durability.py", False),
    ],
)
def test_a_name_of_two_classes_of_tests_is_found(tmp_path: Path, first: str, second: str, found: bool) -> None:
    for module in (first, second):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / module).write_text("class Load:\n    pass\n")
    assert list(_with_two_meanings_in_tests(tmp_path)) == (["Load"] if found else [])


def test_each_name_that_stores_may_share_is_still_shared(repository: Path) -> None:
    assert sorted(ONE_FOR_EACH_STORE) == sorted(_twice(repository / SOURCES).keys() - NOT_YET_TOLD_APART)


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("worker/health.py", "server/sharding/health.py", "Health"),
        ("worker/health.py", "worker/health.py", "_Health"),
        ("server/storage/redis/writer.py", "worker/writer.py", "Writer"),
        ("server/storage/redis/writer.py", "server/storage/redis/scripts.py", "Writer"),
    ],
)
def test_a_name_of_two_classes_is_found(tmp_path: Path, first: str, second: str, name: str) -> None:
    for module in (first, second):
        path = tmp_path / module
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"class {name}:\n    pass\n")
    assert _with_two_meanings(tmp_path) == {name.lstrip("_"): sorted([first, second], key=Path)}


def test_a_name_with_and_without_an_underscore_is_one_name(tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("class Queue:\n    pass\n")
    (tmp_path / "acks.py").write_text("class _Queue:\n    pass\n")
    assert _with_two_meanings(tmp_path) == {"Queue": ["acks.py", "queue.py"]}


def test_a_name_of_one_class_in_each_store_is_allowed(tmp_path: Path) -> None:
    for store in ("redis", "mysql"):
        folder = tmp_path / STORES / store
        folder.mkdir(parents=True)
        (folder / "writer.py").write_text("class Writer:\n    pass\n")
    assert _with_two_meanings(tmp_path) == {}
