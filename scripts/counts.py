"""Counts how much there is to hold in one's head: `make counts`. Any machine shows the same figures.

`SERVER_HALF` is the code that runs the service, "this half" in the table; the last rows are those of client and worker. An argument
(enqueue, dequeue, ack, classes, tables, task, job, circles or constructors) shows what was counted for one row.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src/pinlater"
TESTS = REPOSITORY / "tests"
sys.path[:0] = [str(REPOSITORY)]

from scripts import sdk_counts  # noqa: E402 - found on that path

SERVER_HALF = ("server", "domain", "wire", "tls", "simulation")
SUFFIXES = {".py", ".sql", ".lua", ".thrift"}
# Tests of the other half.
OTHER_TESTS = {
    "cli",
    "client",
    "console",
    "worker",
    "docs",
    "deploy",
    "findings",
    "import_original",
    "release",
}
PUBLIC = {"client", "worker", "testing", "cli", "version"}
# A field of a job, as the IDL, the stores and Python name it.
JOB_FIELDS = {
    "priority": "priority",
    "body": "body",
    "headers": "headers",
    "unique": "uniqueKey unique_key unique",
    "status": "customStatus custom_status status",
    "run after": "runAfterTimestampMillis run_after_ms run_after",
    "allowed": "numAttemptsAllowed attemptsAllowed attempts_allowed attempts",
    "remaining": "attemptsRemaining attempts_remaining",
    "claim timeout": "claimTimeoutMillis claim_timeout_ms claim_timeout",
    "expires": "expiresAtMillis expires_at_ms expires_at expires",
    "created": "createdAtTimestampMillis created_at_ms created_at",
    "finished": "finishedAtTimestampMillis finished_at_ms",
    "deadline": "claimDeadlineMillis claim_deadline_ms",
    "state": "jobState state",
    "error": "lastErrorText error_text",
    "progress": "progress",
}
FIELD_OF = {name: field for field, names in JOB_FIELDS.items() for name in names.split()}
JOB_FIELDS_MIN = 4
SUBJECTS = {
    "the audit": r"audit",
    "bulk runs": r"bulk[_ ]?(run|order|action)",
    "undo": r"undo",
    "failure groups": r"failure_?group|failuregroup",
    "claim_timeout": r"claim_?timeout",
}
REQUESTS = 30


# --- files --------------------------------------------------------------------------------------------------------------------
def files(*packages: str, by_hand: bool = True) -> list[Path]:
    """The files of these packages of `src`, without those that are generated if they are to be `by_hand`."""
    found = [path for package in packages for path in (SOURCE / package).rglob("*") if path.suffix in SUFFIXES]
    return sorted(path for path in found if not (by_hand and "generated" in path.parts))


def lines_of(paths: Sequence[Path]) -> int:
    """All lines, also empty ones."""
    return sum(path.read_text().count("\n") for path in paths)


def naming(pattern: str, paths: Sequence[Path]) -> tuple[int, int]:
    """How many of the files have lines with the pattern, and how many lines these are."""
    wanted = re.compile(pattern, re.IGNORECASE)
    found = [sum(1 for line in path.read_text().splitlines() if wanted.search(line)) for path in paths]
    return sum(map(bool, found)), sum(found)


def modules(paths: Sequence[Path]) -> Iterator[tuple[Path, ast.Module]]:
    """The Python files, parsed."""
    for path in paths:
        if path.suffix == ".py":
            yield path, ast.parse(path.read_text())


# --- what stands in the code --------------------------------------------------------------------------------------------------
def _fields(node: ast.ClassDef) -> set[str]:
    """The fields that a class declares, in its body or in `__init__`."""
    names = {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            names |= {
                target.attr
                for line in ast.walk(item)
                if isinstance(line, ast.Assign)
                for target in line.targets
                if isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            }
    return names


def job_classes(paths: Sequence[Path]) -> list[str]:
    """Classes that are a job: with four or more of its fields."""
    return [
        f"{path.relative_to(SOURCE)}:{node.name}"
        for path, tree in modules(paths)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and len({FIELD_OF[name] for name in _fields(node) if name in FIELD_OF}) >= JOB_FIELDS_MIN
    ]


def method_names() -> set[str]:
    """The methods of the service, as the IDL names them."""
    idl = (SOURCE / "wire/pinlater.thrift").read_text()
    return set(re.findall(r"^\s+[\w<>, ]+ (\w+)\(\s*1: RequestContext", idl, re.MULTILINE))


def method_tables(paths: Sequence[Path], methods: set[str]) -> list[str]:
    """Tables and sets of which two or more keys are names of methods."""
    found = []
    for path, tree in modules(paths):
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict | ast.Set):
                keys = node.keys if isinstance(node, ast.Dict) else node.elts
                named = [key for key in keys if isinstance(key, ast.Constant) and key.value in methods]
                if len(named) >= 2:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    return found


def guarded_methods() -> int:
    """Public methods and attributes of the guarded shard."""
    path = SOURCE / "server/sharding/guarded.py"
    if not path.exists():
        return 0
    tree = ast.parse(path.read_text())
    return sum(
        1
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign)
        and not _is_private(item)
    )


def _is_private(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name.startswith("_")
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return all(isinstance(target, ast.Name) and target.id.startswith("_") for target in targets)


def _touches_private_names(tree: ast.Module) -> bool:
    return any(_is_private_attribute(node) or _is_private_import(node) for node in ast.walk(tree))


def _is_private_attribute(node: ast.AST) -> bool:
    """Named tuples, and `os`, have public functions whose names begin with an underscore."""
    if not isinstance(node, ast.Attribute) or not re.match(r"_[a-z]", node.attr):
        return False
    if node.attr in {"_replace", "_asdict", "_fields", "_make", "_exit"}:
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})


def _is_private_import(node: ast.AST) -> bool:
    if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("pinlater"):
        return False
    return "._" in (node.module or "") or any(re.match(r"_[a-z]", alias.name, re.IGNORECASE) for alias in node.names)


def _is_inner(tree: ast.Module) -> bool:
    """Whether a file of tests imports what users of the package don't."""
    imported = [node.module.split(".") for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return any(path[0] == "pinlater" and len(path) > 1 and path[1] not in PUBLIC for path in imported)


def tests_by_door(*left_out: str) -> tuple[int, int, int]:
    """Test functions outside these folders: all, those in files that touch private names, those in files that import inner modules."""
    every = private = inner = 0
    for path, tree in modules(sorted(TESTS.rglob("*.py"))):
        if path.relative_to(TESTS).parts[0] in left_out:
            continue
        tests = sum(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            for node in ast.walk(tree)
        )
        every += tests
        private += tests if _touches_private_names(tree) else 0
        inner += tests if _is_inner(tree) else 0
    return every, private, inner


# --- what runs ----------------------------------------------------------------------------------------------------------------
class Request(NamedTuple):
    """What one request took: the calls by function, and turns of the event loop."""

    calls: Counter[str]
    turns: int

    @property
    def files(self) -> int:
        """How many files its functions stand in."""
        return len({name.partition(":")[0] for name in self.calls})


class Calls:
    """Counts the Python calls of our own code in all threads, from when a request arrives until its answer is given to the kernel.

    A coroutine that is resumed counts as a call.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.turn = 0
        self._root = str(SOURCE) + "/"
        self._now: Counter[str] = Counter()
        self._first_turn: int | None = None

    def event(self, frame: FrameType, event: str, function: Any) -> None:
        """An event of the profiler."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._root):
            if code.co_name == "data_received":
                self._first_turn, self._now = self.turn, Counter()
            self._now[f"{code.co_filename.removeprefix(self._root)}:{code.co_qualname}"] += 1
        elif (
            event == "c_call"
            and self._first_turn is not None
            and code.co_name == "write"
            and function.__name__ == "send"
        ):
            self.requests.append(Request(self._now, self.turn - self._first_turn + 1))
            self._first_turn = None


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts its turns."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]
        self._calls.turn += 1


def serve(folder: Path, calls: Calls, started: Callable[[int, Callable[[], object]], None]) -> None:
    """Runs a server on SQLite in this thread until it is stopped; tells its port, and how to stop it."""
    from pinlater.server.config.settings import Settings
    from pinlater.server.config.store import StoreLocation
    from pinlater.server.http.settings import HttpSettings
    from pinlater.server.main.app import App
    from pinlater.server.thrift.settings import ThriftSettings

    place = StoreLocation("sqlite", folder / "jobs.db")
    settings = Settings(store=place, thrift=ThriftSettings(port=0), http=HttpSettings(port=0))

    async def run() -> None:
        app, stopped, loop = App(settings), asyncio.Event(), asyncio.get_running_loop()
        await app.start()
        started(app.thrift.port, lambda: loop.call_soon_threadsafe(stopped.set))
        await stopped.wait()
        await app.stop(0)

    with asyncio.Runner(loop_factory=lambda: CountingLoop(calls)) as runner:
        runner.run(run())


def calls_a_job() -> dict[str, Request]:
    """An enqueue, a dequeue and an ack of one job, each alone. The one with the fewest calls of some: no periodic work came between."""
    from bench import frames
    from bench.raw_client import RawClient

    calls, ready = Calls(), threading.Event()
    found: list[Any] = []

    def started(port: int, stop: Callable[[], object]) -> None:
        found.extend((port, stop))
        ready.set()

    threading.setprofile(calls.event)
    with tempfile.TemporaryDirectory() as folder:
        server = threading.Thread(target=serve, args=(Path(folder), calls, started))
        server.start()
        threading.setprofile(None)
        if not ready.wait(30):
            raise RuntimeError("the server does not start")
        port, stop = found
        try:
            with RawClient(port) as client:
                client.create_queue("q")
                calls.requests.clear()
                ack = frames.AckMaker("q")
                for _ in range(REQUESTS):
                    client.call(frames.enqueue("q", [b"x" * 100]))
                    [job] = client.claim("q", 1)
                    client.call(ack.frame([job.descriptor]))
        finally:
            stop()
            server.join()
    kinds = ("enqueue", "dequeue", "ack")
    return {kind: min(calls.requests[place::3], key=lambda one: one.calls.total()) for place, kind in enumerate(kinds)}


# --- the table ----------------------------------------------------------------------------------------------------------------
def rows() -> Iterator[tuple[str, str]]:
    """What is counted, and the count."""
    half, all_of_it = files(*SERVER_HALF), files("")
    for name, request in calls_a_job().items():
        figures = f"{request.calls.total()} in {request.files}; {request.turns}"
        yield f"calls of one {name} on SQLite, in files; turns of the event loop", figures
    in_half, in_all = (job_classes(files(*packages, by_hand=False)) for packages in (SERVER_HALF, [""]))
    yield "classes that are a job, generated ones too: this half; all", f"{len(in_half)}; {len(in_all)}"
    for subject, pattern in SUBJECTS.items():
        named, lines = naming(pattern, half)
        yield f"files of this half that name {subject}", f"{named}, with {lines} lines"
    tables = len(method_tables(half, method_names()))
    yield "tables and sets keyed by method name; guarded methods", f"{tables}; {guarded_methods()}"
    operation, lines = naming(r"change_?priority", half)
    yield "files of this half that name the operation changePriority", f"{operation}, with {lines} lines"
    field, lines = naming(r"claim_?timeout", all_of_it)
    yield "files of src that name the field claim_timeout", f"{field}, with {lines} lines"
    generated = [path for path in files("", by_hand=False) if "generated" in path.parts]
    yield "lines by hand in this half; generated", f"{lines_of(half):,}; {lines_of(generated):,}"
    for package in sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"):
        paths = files(package)
        yield f"  lines and files of {package}", f"{lines_of(paths):,} in {len(paths)}"
    for which, left_out in (("this half", OTHER_TESTS), ("both halves", ())):
        every, private, inner = tests_by_door(*left_out)
        yield f"tests of {which}: in files with private names; with inner modules", f"{private}; {inner} of {every}"
    yield "lines of tests", f"{lines_of(sorted(TESTS.rglob('*.py'))):,}"
    for package in sorted(path for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"):
        every, private, _ = tests_by_door(*{path.name for path in TESTS.iterdir()} - {package.name})
        lines = lines_of(sorted(package.rglob("*.py")))
        yield f"  lines of tests/{package.name}; tests; in files with private names", f"{lines:,}; {every}; {private}"
    yield from sdk_counts.rows()


def main() -> None:
    """Prints the table, or what one of its rows counted."""
    if len(sys.argv) == 1:
        for name, count in rows():
            sys.stdout.write(f"{name:<84}{count}\n")
        return
    what = sys.argv[1]
    if what == "classes":
        lines = job_classes(files("", by_hand=False))
    elif what == "tables":
        lines = method_tables(files(*SERVER_HALF), method_names())
    elif what in sdk_counts.SHOWN:
        lines = sdk_counts.SHOWN[what]()
    else:
        lines = [f"{number:4} {name}" for name, number in sorted(calls_a_job()[what].calls.items())]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
