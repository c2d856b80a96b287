"""Runs what `docker` commands of a page say, without Docker: the image's program with its environment, and folders in place of volumes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_WITH_VALUE = frozenset({"--name", "--restart", "--stop-timeout", "-p", "-v", "-e", "--user"})
_WITHOUT_VALUE = frozenset({"-d", "--rm"})


@dataclass(frozen=True)
class Image:
    """What an image's containers get: variables but PATH, the program's name, its arguments if a command gives none, and volumes.

    `copied`: files of the checkout by their paths in the image. `health_check`: the words of the command.
    """

    environment: Mapping[str, str]
    entrypoint: Sequence[str]
    arguments: Sequence[str]
    volumes: Sequence[str]
    copied: Mapping[str, str]
    health_check: Sequence[str]

    @classmethod
    def of(cls, dockerfile: str) -> Image:
        """Of the last stage."""
        last = dockerfile.rpartition("\nFROM ")[2].replace("\\\n", " ")
        found = [shlex.split(line) for line in re.findall(r"^ENV (.+)$", last, re.MULTILINE)]
        variables = dict(word.split("=", 1) for words in found for word in words)
        variables.pop("PATH")
        [entrypoint] = re.findall(r"^ENTRYPOINT (.+)$", last, re.MULTILINE)
        [arguments] = re.findall(r"^CMD (.+)$", last, re.MULTILINE)
        volumes = re.findall(r"^VOLUME (\S+)$", last, re.MULTILINE)
        copied = {target: source for source, target in re.findall(r"^COPY ([^-]\S*) (\S+)$", last, re.MULTILINE)}
        [check] = re.findall(r"^HEALTHCHECK .* CMD (.+)$", last, re.MULTILINE)
        return cls(variables, json.loads(entrypoint), json.loads(arguments), volumes, copied, json.loads(check))


@dataclass(frozen=True)
class DockerCommand:
    """`docker run` or `docker exec`: its variables, mounted volumes (where, and what), and the arguments behind the image or container."""

    verb: str
    environment: Sequence[str]
    mounts: Mapping[str, str]
    detached: bool
    arguments: Sequence[str]

    @classmethod
    def of(cls, words: Sequence[str]) -> DockerCommand:
        """Of the words behind `docker`. A word that looks like an option unknown here fails."""
        verb, *rest = words
        options: list[tuple[str, str]] = []
        while rest[0].startswith("-"):
            name = rest.pop(0)
            assert name in _WITH_VALUE | _WITHOUT_VALUE, name
            options.append((name, rest.pop(0) if name in _WITH_VALUE else ""))
        places = [value.split(":") for name, value in options if name == "-v"]
        mounts = {target: source for source, target, *_ in places}
        return cls(
            verb, [value for name, value in options if name == "-e"], mounts, ("-d", "") in options, tuple(rest[1:])
        )


def docker_commands(script: str) -> list[DockerCommand]:
    """The commands of a shell script that run the image or a program in its container."""
    lines = [shlex.split(line) for line in script.replace("\\\n", " ").splitlines()]
    return [DockerCommand.of(words[1:]) for words in lines if words[:1] == ["docker"] and words[1] in ("run", "exec")]


@dataclass
class ContainerHost:
    """Carries out such commands. `folder`: holds a folder for each volume, and one for each path of the machine that is mounted.

    `replaced`: texts of arguments, such as addresses, with what stands for them here. `variables`: what the shell has exported.
    """

    image: Image
    folder: Path
    replaced: Mapping[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def at(self, source: str) -> Path:
        """The folder of a volume, or of a path of the machine."""
        found = self.folder / source.replace("/", "_")
        found.mkdir(exist_ok=True)
        return found

    def run(self, command: DockerCommand) -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
        return subprocess.run(
            self._words(command),
            env=self._environment(command),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self, command: DockerCommand) -> ContainerServer:
        """Starts a server, ready, on ports of its own."""
        process = subprocess.Popen(
            self._words(command), env=self._environment(command), stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        said = ""
        for line in process.stderr:
            said += line
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("event") == "ready":
                return ContainerServer(process, entry["thrift_port"], entry["http_port"])
        process.communicate()
        raise AssertionError(f"the server ended with {process.returncode}: {said}")

    def check_health(self, http_port: int, repository: Path, environment: Mapping[str, str]) -> int:
        """The exit status of the image's health check, with these variables, on a server with that HTTP port."""
        program, script, address = self.image.health_check
        assert (program, address) == ("python", "127.0.0.1:9999")
        words = [sys.executable, str(repository / self.image.copied[script]), f"127.0.0.1:{http_port}"]
        return subprocess.run(words, env=environment, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode

    def _words(self, command: DockerCommand) -> list[str]:
        arguments = list(command.arguments)
        if command.verb == "run":
            arguments = [*self.image.entrypoint, *(arguments or self.image.arguments)]
        assert arguments[0] == "pinlater"
        places = self._places(command)
        return [sys.executable, "-m", "pinlater", *(_with(each, {**self.replaced, **places}) for each in arguments[1:])]

    def _environment(self, command: DockerCommand) -> dict[str, str]:
        places = self._places(command)
        given = [text if "=" in text else f"{text}={self.variables.get(text, '')}" for text in command.environment]
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")},
            **{name: _with(value, places) for name, value in self.image.environment.items()},
            "PINLATER_THRIFT_PORT": "0",
            "PINLATER_HTTP_PORT": "0",
            "PINLATER_TELEMETRY_LOG_FORMAT": "json",
            **{name: value for name, value in self.variables.items() if name != "PINLATER_TOKEN"},
            **dict(text.split("=", 1) for text in given),
        }

    def _places(self, command: DockerCommand) -> dict[str, str]:
        """The folder for each path in the container that is a volume. One that is not mounted is new and empty."""
        unnamed = {path: tempfile.mkdtemp(dir=self.folder) for path in self.image.volumes if path not in command.mounts}
        return {**unnamed, **{target: str(self.at(source)) for target, source in command.mounts.items()}}


@dataclass(frozen=True)
class ContainerServer:
    """A server that runs, and its ports."""

    process: subprocess.Popen[str]
    thrift_port: int
    http_port: int

    def stop(self) -> str:
        """Stops it in order; what it said since it was ready."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return said


def _with(text: str, replaced: Mapping[str, str]) -> str:
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text
