"""What may import what, beyond the contracts that import-linter checks."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

# Modules of the extras, and packages of the server: a producer or worker installs and imports none of them.
FORBIDDEN_FOR_CLIENTS = (
    "uvloop",
    "prometheus_client",
    "re2",
    "sqlite3",
    "asyncmy",
    "redis",
    "starlette",
    "uvicorn",
    "jinja2",
    "pinlater.console",
    "pinlater.server.main.app",
    "pinlater.server.config",
    "pinlater.server.main.core",
    "pinlater.server.dispatch",
    "pinlater.server.features",
    "pinlater.server.http",
    "pinlater.server.maintenance",
    "pinlater.server.main.cluster",
    "pinlater.server.operations",
    "pinlater.server.sharding",
    "pinlater.server.storage",
    "pinlater.server.telemetry",
    "pinlater.server.thrift",
)


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after `statement`."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "statement",
    [
        "import pinlater",
        "import pinlater; pinlater.AsyncClient",
        "import pinlater; pinlater.Client",
        "import pinlater.client",
        "import pinlater.worker",
    ],
)
def test_client_and_worker_load_no_part_of_the_server(statement: str) -> None:
    loaded = loaded_by(statement)
    assert [name for name in FORBIDDEN_FOR_CLIENTS if name in loaded] == []


def test_a_client_has_imported_what_it_needs_to_find_the_owners_of_queues() -> None:
    """A child that is forked beside the import would wait for it for ever."""
    client = "from pinlater import Client; from pinlater.client._owners import KnownOwners"
    looks = "from pinlater.domain.rendezvous import rendezvous_order; rendezvous_order('q', ['1', '2'])"
    assert loaded_by(f"{client}; {looks}") - loaded_by(client) == set()


# Packages that a client and a worker import besides Python's own. The `sitecustomize` of an image does not count.
OTHERS = {"thrift", "msgspec", "typing_extensions"}


@pytest.mark.parametrize(
    ("statement", "others"),
    [
        ("import pinlater", set()),
        ("import pinlater; pinlater.AsyncClient, pinlater.Client, pinlater.EnqueueBatcher", OTHERS),
        ("import pinlater; pinlater.Worker", OTHERS),
    ],
)
def test_client_and_worker_are_light(statement: str, others: set[str]) -> None:
    """Drivers, web frameworks, typer, OpenTelemetry are not loaded, although they are installed."""
    roots = {name.partition(".")[0] for name in loaded_by(statement)} - sys.stdlib_module_names
    public = {name for name in roots if not name.startswith("_")}
    assert public - {"pinlater", "sitecustomize"} == others


def test_the_sync_client_is_what_the_async_one_makes(repository: Path) -> None:
    script = repository / "scripts/make-sync-client"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_line_starts_without_loading_the_server() -> None:
    """`pinlater job enqueue` works in the base installation, and starts quickly."""
    loaded = loaded_by("import pinlater.cli.main")
    assert [name for name in FORBIDDEN_FOR_CLIENTS if name in loaded] == []


def test_the_in_process_service_loads_no_store_but_sqlite() -> None:
    """It reads the settings of a server, and these name all stores."""
    loaded = loaded_by("import pinlater.testing")
    assert [name for name in ("asyncmy", "redis", "uvloop", "prometheus_client") if name in loaded] == []


def test_the_domain_imports_the_standard_library_only(repository: Path) -> None:
    """Stores, simulators and docs can all use its rules."""
    foreign = [
        f"{path.name}: {name}"
        for path in (repository / "src/pinlater/domain").glob("*.py")
        for name in imported_names(path)
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("pinlater.domain")
    ]
    assert foreign == []


def imported_names(path: Path) -> list[str]:
    """The dotted names of all modules that a file imports, wherever in it."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(f"pinlater.domain.{node.module}" if node.level else str(node.module))
    return names


def test_command_imports_little_before_it_handles_signals() -> None:
    """Process 1 of a container loses a SIGTERM that comes earlier. `typing` takes longer than the rest together."""
    assert "typing" not in loaded_by("import pinlater.__main__") - loaded_by("pass")
