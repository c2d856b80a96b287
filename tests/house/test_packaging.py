"""One wheel: what producers and workers install, and what the extras add to it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from pinlater import __version__

pytestmark = [pytest.mark.release, pytest.mark.timeout(300)]


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The finished command, its output captured; a failure shows it."""
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh virtual environment in which pip can build and install."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    made = run(sys.executable, "-m", "venv", folder)
    assert made.returncode == 0, made.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(bare: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    dist = tmp_path_factory.mktemp("dist")
    built = run(bare / "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", dist, repository)
    assert built.returncode == 0, built.stderr
    (made,) = dist.glob("pinlater-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(bare: Path, wheel: Path) -> Path:
    """The command of an installation without extras."""
    done = run(bare / "python", "-m", "pip", "install", "--quiet", wheel)
    assert done.returncode == 0, done.stderr
    return bare / "pinlater"


def test_the_wheel_carries_types_statements_and_the_idl(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "pinlater/py.typed" in names
    assert "pinlater/wire/pinlater.thrift" in names
    assert any(name.startswith("pinlater/server/storage/sqlite/") and name.endswith(".sql") for name in names)
    assert any(name.startswith("pinlater/server/storage/redis/") and name.endswith(".lua") for name in names)
    assert not any(name.startswith(("tests/", "bench/", "docs/")) for name in names)


def test_an_extra_is_offered_for_each_part_of_the_server_and_the_console(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"pinlater-{__version__}.dist-info/METADATA").decode()
    assert {"server", "regex", "mysql", "redis", "zookeeper", "otel", "console"} == {
        line.removeprefix("Provides-Extra: ") for line in metadata.splitlines() if line.startswith("Provides-Extra: ")
    }


def test_the_base_installs_no_part_of_the_server(installed: Path) -> None:
    listed = run(installed.with_name("python"), "-m", "pip", "list", "--format=freeze").stdout.lower()
    assert [
        name
        for name in ("uvloop", "prometheus", "re2", "mysql", "redis", "starlette", "uvicorn", "jinja2")
        if name in listed
    ] == []


def test_a_fresh_installation_has_the_versions_that_are_tested(bare: Path, wheel: Path, repository: Path) -> None:
    """With all extras, pip resolves to what the lock says. If it does not, a newer version has come: lock it and run the tests."""
    extras = ",".join(tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    install = (bare / "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-")
    done = run(*install, f"{wheel}[{extras}]")
    assert done.returncode == 0, done.stderr
    packages = (item["metadata"] for item in json.loads(done.stdout)["install"])
    resolved = {item["name"].lower().replace("_", "-"): item["version"] for item in packages}
    locked = {
        item["name"]: item.get("version") for item in tomllib.loads((repository / "uv.lock").read_text())["package"]
    }
    assert "pydantic" not in resolved
    assert {name: version for name, version in resolved.items() if name != "pinlater" and locked[name] != version} == {}


def test_the_base_runs_with_the_oldest_versions_that_it_allows(wheel: Path, repository: Path, tmp_path: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    oldest = [re.sub(r">=([^,]+).*", r"==\1.*", requirement) for requirement in project["dependencies"]]
    done = run(sys.executable, "-m", "pip", "install", "--quiet", "--target", tmp_path / "lib", wheel, *oldest)
    assert done.returncode == 0, done.stderr
    (tmp_path / "clock.py").write_text(
        "from pinlater import Worker\nworker = Worker()\n@worker.cron('*/2 7 */2 * MON')\ndef tick(): ...\n"
    )
    command = "import sys; sys.path.insert(0, 'lib'); from pinlater.__main__ import main; main()"
    shown = run(sys.executable, "-S", "-c", command, "worker", "cron", "clock:worker", cwd=tmp_path)
    assert "day of month and weekday must match" in shown.stdout, shown.stderr


def test_the_base_runs_its_commands(installed: Path) -> None:
    assert __version__ in run(installed, "server", "version").stdout
    assert run(installed, "--help").returncode == 0
    assert run(installed, "job", "enqueue", "--help").returncode == 0


def test_the_base_says_what_to_install_for_a_server(installed: Path, tmp_path: Path) -> None:
    """With a command that works, from the wheel that the base came from, and without a traceback about an unknown module."""
    done = run(installed, "serve", "--store", "sqlite:jobs.db", cwd=tmp_path)
    assert done.returncode != 0
    [line] = re.findall(r"pip install '(\S+)\[server\]'", done.stdout + done.stderr)
    assert Path(line).is_file()
    assert "Traceback" not in done.stdout + done.stderr


# Each page that installs pinlater, and the lines on it, as a reader copies them.
INSTALL_LINES = {
    "README.md": 1,
    "docs/quickstart.md": 2,
    "docs/how-to/coming-from-the-original.md": 1,
    "docs/how-to/http-api.md": 1,
    "docs/how-to/production.md": 1,
    "docs/how-to/run-on-mysql.md": 1,
    "docs/how-to/run-on-redis.md": 1,
}
_LINE = re.compile(r"""^.*?\bpip install ("[^"]*pinlater-[^"]+"|'\.[^']*')""", re.MULTILINE)


def install_lines(page: Path) -> list[str]:
    """What `pip install` is told on this page, where that is pinlater."""
    return _LINE.findall(page.read_text())


# What a page says about a server that needs an extra beside `server`.
_NEEDS = {"console": r"dashboard|`console`", "mysql": r"--store mysql:", "redis": r"--store redis:", "otel": r"otel"}


def test_install_lines_name_the_extras_that_the_rest_of_the_page_needs(repository: Path) -> None:
    lacking = []
    for page in INSTALL_LINES:
        text, lines = (repository / page).read_text(), install_lines(repository / page)
        extras = {extra for line in lines for extra in line.rpartition("[")[2].rstrip("]\"'").split(",")}
        if "server" in extras:
            needed = {extra for extra, words in _NEEDS.items() if re.search(words, text)}
            lacking += [(page, extra) for extra in needed - extras]
    assert lacking == []


def test_the_install_lines_of_all_pages_are_tried(repository: Path) -> None:
    pages = [repository / "README.md", *(repository / "docs").rglob("*.md")]
    found = {str(page.relative_to(repository)): len(install_lines(page)) for page in pages}
    assert {page: lines for page, lines in found.items() if lines} == INSTALL_LINES


@pytest.mark.parametrize(
    ("page", "number"), [(page, number) for page, lines in INSTALL_LINES.items() for number in range(lines)]
)
def test_the_install_line_of_a_page_works(
    page: str, number: int, bare: Path, wheel: Path, repository: Path, tmp_path: Path
) -> None:
    """In a folder with the wheel in dist/, as `make wheel` leaves it, or in the checkout. pip resolves all requirements, installs none."""
    line = install_lines(repository / page)[number]
    folder = repository if line.startswith("'.") else tmp_path
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / wheel.name).hardlink_to(wheel)
    # Requirements that other tests have installed here count too.
    install = f"{bare}/pip install --dry-run --ignore-installed --quiet --report - {line}"
    done = run("bash", "-c", install, cwd=folder)
    assert done.returncode == 0, done.stderr
    names = {item["metadata"]["name"].lower() for item in json.loads(done.stdout)["install"]}
    assert {"pinlater", "typer"} <= names
    for extra, package in (("server", "uvloop"), ("mysql", "asyncmy"), ("redis", "redis")):
        assert (package in names) == (extra in line.partition("[")[2])
