"""Commands where the extras are not installed: what asks no database and starts no server works; the rest says what to install."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVERS = ("asyncmy", "redis", "hiredis")
SERVER = ("uvloop", "prometheus_client", "re2", "h11")
PROGRAM = """
import sys

class Hiding:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if {{name, name.partition(".")[0]}} & {hidden!r} else self._finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
from pinlater.cli.main import main
sys.argv = ["pinlater", *{arguments!r}]
main()
"""
USER = {"user": "pinlater", "passwd": "secret"}
FILES = {
    "mysql": {f"db00{port}": {"master": {"host": "127.0.0.1", "port": port}} | USER for port in (1, 2)},
    "redis": {
        "shards": [
            {"name": number, "shardConfig": {"master": {"host": "127.0.0.1", "port": int(number)}}} for number in "12"
        ]
    },
}


def run(*arguments: str, hidden: tuple[str, ...] = DRIVERS) -> subprocess.CompletedProcess[str]:
    """The command in an interpreter that does not find these packages."""
    program = PROGRAM.format(hidden=set(hidden), arguments=arguments)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.fixture(params=["mysql", "redis"])
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The option that names a shard file with two shards."""
    path = tmp_path / f"{request.param}.json"
    path.write_text(json.dumps(FILES[request.param]))
    return ["--shards", str(path)]


def test_the_shards_are_listed_without_a_driver(shards: list[str]) -> None:
    done = run("shards", "list", *shards, "--json", hidden=DRIVERS + SERVER)
    assert (done.returncode, done.stderr) == (0, "")
    assert [shard["name"] for shard in json.loads(done.stdout)["shards"]] == ["1", "2"]


@pytest.mark.parametrize(
    ("words", "code"), [("--help", 0), ("bench load -s 127.0.0.1:1", 3), ("serve", 1), ("worker", 2)]
)
def test_commands_for_jobs_work_without_the_servers_packages(words: str, code: int) -> None:
    done = run(*words.split(), hidden=SERVER)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert ("[server]" in done.stderr) == (words == "serve")


def test_a_worker_whose_program_needs_an_extra_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "from pinlater import Worker\nfrom pinlater.worker.tracing import OpenTelemetry\n\n"
    (tmp_path / "shop.py").write_text(text + "worker = Worker(middleware=[OpenTelemetry()])\n")
    done = run("worker", "shop:worker", hidden=("opentelemetry",))
    assert done.returncode == 2
    assert "No module named 'opentelemetry' (shop.py, line 4): pip install " in done.stderr
    assert done.stderr.endswith("[otel]'\n")
    (tmp_path / "shop.py").write_text("import prometheus_client\n")
    other = run("worker", "shop:worker", hidden=("prometheus_client",))
    assert other.stderr == "error: shop can't be loaded: No module named 'prometheus_client' (shop.py, line 1)\n"


def test_the_settings_are_shown_without_a_driver_which_they_warn_of(shards: list[str]) -> None:
    done = run("server", "settings", *shards, "--json", hidden=DRIVERS + SERVER)
    assert (done.returncode, "store" in json.loads(done.stdout)) == (0, True)
    (line,) = [line for line in done.stderr.splitlines() if "is not installed" in line]
    assert "pip install" in json.loads(line)["warning"]


def test_an_entry_is_marked_and_unmarked_without_a_driver_if_nothing_is_asked(shards: list[str]) -> None:
    done = run("shards", "drain", "2", *shards, "--undo")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("shards", "status"), ("server", "migrate")])
def test_a_command_that_needs_a_missing_driver_says_what_to_install(
    arguments: tuple[str, ...], shards: list[str]
) -> None:
    done = run(*arguments, *shards)
    assert (done.returncode, done.stdout) == (78, "")
    assert "is not installed: pip install" in done.stderr


def test_a_module_that_is_missing_inside_a_group_of_commands_is_no_bug(shards: list[str]) -> None:
    """The driver is there, but not what it needs: found while the command runs."""
    done = run("shards", "status", *shards, hidden=("redis.asyncio", "asyncmy.errors"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: `pinlater shards status` needs ")


def test_a_module_of_our_own_that_can_not_be_loaded_is_a_bug_and_needs_no_package() -> None:
    done = run("job", "list", "q", hidden=("pinlater.cli.commands.job.list",))
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr == (
        "error: `pinlater job list` can't be loaded: No module named 'pinlater.cli.commands.job.list' "
        "(`pinlater --traceback job list` shows where)\n"
    )


@pytest.mark.parametrize("json_wanted", [False, True])
def test_problems_of_the_settings_are_lines_or_json(json_wanted: bool) -> None:
    done = run(
        "server", "settings", "--set", "thrift.prot=1", "--set", "nonsense=2", *(["--json"] if json_wanted else [])
    )
    assert done.returncode == 78
    if json_wanted:
        lines = json.loads(done.stderr)["error"].splitlines()
        assert [line[:7] for line in lines] == ["2 probl", "  --set", "  --set"]
    else:
        assert [line[:4] for line in done.stderr.splitlines()] == ["erro", "  --", "  --"]
