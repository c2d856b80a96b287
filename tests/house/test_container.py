"""What docs/how-to/production.md tells operators to run with Docker starts a server with tokens that answers."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.databases.redis import RedisServer
from tests.databases.redis_users import PASSWORD
from tests.house.containers import ContainerHost, ContainerServer, DockerCommand, Image, docker_commands
from tests.house.snippets import blocks
from tests.shared_shards.shard_files import RedisShardFile
from tests.tls.certificates import Authority

EXIT_SETTINGS = 78


@pytest.fixture
def image(repository: Path) -> Image:
    return Image.of((repository / "deploy/Dockerfile").read_text())


@pytest.fixture
def machine(image: Image, tmp_path: Path) -> ContainerHost:
    return ContainerHost(image, tmp_path)


@pytest.fixture
def scripts(repository: Path) -> list[list[DockerCommand]]:
    """The commands of each block of the page's section that has any."""
    page = (repository / "docs/how-to/production.md").read_text()
    section = page.partition("\n## With Docker\n")[2].partition("\n## ")[0]
    return [found for block in blocks(section) if block.language == "sh" and (found := docker_commands(block.text))]


def script_with(scripts: list[list[DockerCommand]], word: str) -> list[DockerCommand]:
    """The one block whose server has this argument."""
    [found] = [script for script in scripts if word in script[-1].arguments and script[-1].detached]
    return found


@contextmanager
def run_script(machine: ContainerHost, script: list[DockerCommand]) -> Iterator[tuple[ContainerServer, str]]:
    """The server that the commands start in the end, and the secret of the token that they make first."""
    *before, serve = script
    assert serve.detached
    secret = ""
    for command in before:
        done = machine.run(command)
        assert (done.returncode, done.stderr) == (0, "")
        secret = done.stdout.strip()
    with ExitStack() as stopped:
        server = machine.start(serve)
        stopped.callback(server.stop)
        yield server, secret


def create_a_queue(
    machine: ContainerHost, scripts: list[list[DockerCommand]], server: ContainerServer, secret: str
) -> tuple[int, str]:
    """Runs the page's command in the container, with this token; its status and output."""
    [command] = [command for script in scripts for command in script if command.verb == "exec"]
    machine.variables |= {"PINLATER_TOKEN": secret, "PINLATER_SERVERS": f"127.0.0.1:{server.thrift_port}"}
    done = machine.run(command)
    return done.returncode, done.stdout + done.stderr


def test_with_sqlite_the_page_makes_a_token_once_and_the_server_answers_it(
    machine: ContainerHost, scripts: list[list[DockerCommand]]
) -> None:
    with run_script(machine, scripts[0]) as (server, secret):
        assert create_a_queue(machine, scripts, server, secret) == (0, "created emails\n")
        again = machine.run(scripts[0][0])
        assert (again.returncode, "has a token admin already" in again.stderr) == (1, True)
        code, said = create_a_queue(machine, scripts, server, "")
        assert (code, "token" in said) == (1, True)
    assert (machine.at("pinlater") / "pinlater.db").exists()


def test_the_health_check_of_the_image_needs_no_token(
    machine: ContainerHost, scripts: list[list[DockerCommand]], repository: Path
) -> None:
    with run_script(machine, scripts[0]) as (server, _):
        assert machine.check_health(server.http_port, repository, {}) == 0
    assert machine.check_health(server.http_port, repository, {}) == 1


@pytest.mark.parametrize("told", [False, True], ids=["in the settings", "in the environment"])
def test_the_health_check_of_the_image_works_with_tls(
    machine: ContainerHost, scripts: list[list[DockerCommand]], repository: Path, tmp_path: Path, told: bool
) -> None:
    """The certificate is for the name that clients use, and clients need one, too. Told of it, the check leaves no warning."""
    authority = Authority(tmp_path / "authority")
    pair = authority.sign("jobs.example")
    machine.variables = {
        "PINLATER_TLS_CERTIFICATE_FILE": str(pair.certificate),
        "PINLATER_TLS_KEY_FILE": str(pair.key),
        "PINLATER_TLS_CLIENT_CA_FILE": str(authority.file),
        "PINLATER_TLS_REQUIRE_CLIENT_CERTIFICATE": "true",
    }
    with ExitStack() as stopped:
        *before, serve = scripts[0]
        assert [machine.run(command).returncode for command in before] == [0]
        server = machine.start(serve)
        stopped.callback(server.process.kill)
        assert machine.check_health(server.http_port, repository, machine.variables if told else {}) == 0
        assert ("a client without TLS has connected" in server.stop()) is not told


def test_with_redis_the_page_makes_a_token_and_the_server_answers_it(
    machine: ContainerHost, scripts: list[list[DockerCommand]], redis_with_users: RedisServer, redis_prefix: str
) -> None:
    machine.replaced = {"redis.example": redis_with_users.address}
    machine.variables = {"PINLATER_REDIS_PASSWORD": PASSWORD, "PINLATER_REDIS_KEY_PREFIX": redis_prefix}
    with run_script(machine, script_with(scripts, "redis://pinlater@redis.example/0")) as (server, secret):
        assert create_a_queue(machine, scripts, server, secret) == (0, "created emails\n")


def test_with_a_shard_file_the_page_makes_a_token_and_the_server_answers_it(
    machine: ContainerHost,
    scripts: list[list[DockerCommand]],
    redis_with_users: RedisServer,
    redis_prefix: str,
    tmp_path: Path,
) -> None:
    shard_file = RedisShardFile(tmp_path / "shards.json", redis_with_users, "1", "2")
    shutil.move(shard_file.path, machine.at("/etc/pinlater"))
    machine.variables = {"PINLATER_REDIS_KEY_PREFIX": redis_prefix}
    with run_script(machine, script_with(scripts, "/etc/pinlater/shards.json")) as (server, secret):
        assert create_a_queue(machine, scripts, server, secret) == (0, "created emails\n")
    [drain] = [command for script in scripts for command in script if "drain" in command.arguments]
    done = machine.run(drain)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"dequeueOnly": true' in (machine.at("/etc/pinlater") / "shards.json").read_text()


def test_without_the_token_the_server_ends_and_says_what_makes_it(
    machine: ContainerHost, scripts: list[list[DockerCommand]]
) -> None:
    done = machine.run(scripts[0][-1])
    assert done.returncode == EXIT_SETTINGS
    assert "tokens.json can't be read" in done.stderr
    assert "`pinlater token create` makes it" in done.stderr


def test_two_variables_let_every_client_do_everything_instead(
    machine: ContainerHost, scripts: list[list[DockerCommand]], repository: Path
) -> None:
    """Both the page and the Dockerfile name them."""
    variables = ["PINLATER_ACCESS_TOKENS_FILE=", "PINLATER_ACCESS_INSECURE=true"]
    for name in ("docs/how-to/production.md", "deploy/Dockerfile"):
        text = (repository / name).read_text()
        assert all(f"-e {each}" in text for each in variables), name
    serve = scripts[0][-1]
    insecure = DockerCommand(serve.verb, variables, serve.mounts, serve.detached, serve.arguments)
    with run_script(machine, [insecure]) as (server, _):
        assert create_a_queue(machine, scripts, server, "") == (0, "created emails\n")
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/server_info", timeout=10) as answer:
            assert json.load(answer)["access"] == "insecure"
