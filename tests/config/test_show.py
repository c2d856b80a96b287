"""What an operator may see of the settings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pinlater.cli import exits
from pinlater.cli.call import with_options
from pinlater.cli.commands.server.hash_password import hash_password as hash_password_command
from pinlater.cli.commands.server.settings import settings
from pinlater.domain.passwords import hash_password, verify_password
from pinlater.server.config.load import load
from pinlater.server.config.schema import keys
from pinlater.server.config.show import HIDDEN, shown_settings

app = typer.Typer()
app.command()(with_options(settings))
app.command("hash-password")(with_options(hash_password_command))


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    for key in keys().values():
        monkeypatch.delenv(key.variable, raising=False)
    return CliRunner()


def test_secrets_are_never_shown() -> None:
    stored = hash_password("open sesame")
    rows = {row.path: row.value for row in shown_settings(load(flags={"admin_password_hash": stored}))}
    assert rows["admin_password_hash"] == HIDDEN
    assert stored not in str(rows)


def test_json_has_every_key_with_its_value_and_origin(runner: CliRunner) -> None:
    result = runner.invoke(app, ["settings", "--json", "--http-port", "7"], env={"PINLATER_THRIFT_PORT": "8"})
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert list(shown) == list(keys())
    assert shown["http.port"] == {"value": 7, "source": "flag", "place": "--http-port"}
    assert shown["thrift.port"] == {"value": 8, "source": "environment", "place": "PINLATER_THRIFT_PORT"}
    assert shown["store"] == {"value": "sqlite:pinlater.db", "source": "default", "place": None}


def test_text_has_a_line_for_every_key(runner: CliRunner) -> None:
    result = runner.invoke(app, ["settings", "--store", "memory:"])
    assert len(result.stdout.splitlines()) == len(keys())
    assert "# flag --store" in result.stdout.splitlines()[0]
    assert "warning: store: jobs are kept in memory" in result.stderr


def test_the_text_is_a_settings_file_with_the_same_values(runner: CliRunner, tmp_path: Path) -> None:
    """An operator copies lines of it. What is not set, and what is secret, is a comment."""
    given = ["settings", "--store", "sqlite:jöbs.db", "--set", "jobs.max_backlog=5"]
    given += ["--set", "http.allowed_hosts=a,b"]
    secret = {"PINLATER_ADMIN_PASSWORD_HASH": hash_password("open sesame")}
    text = runner.invoke(app, given, env=secret).stdout
    assert "\n# queue_limits_file " in text
    assert re.search(r"\n# admin_password_hash +=", text)
    path = tmp_path / "copied.toml"
    path.write_text(text)
    copied = json.loads(runner.invoke(app, ["settings", "--json", "--config", str(path)]).stdout)
    expected = json.loads(runner.invoke(app, [*given, "--json"], env=secret).stdout)
    for name in copied.keys() - {"store", "admin_password_hash"}:
        assert copied[name]["value"] == expected[name]["value"]
    assert copied["store"]["value"].endswith("jöbs.db")  # beside the file that names it
    assert copied["jobs.max_backlog"]["source"] == "file"


def test_any_setting_is_possible_as_a_flag(runner: CliRunner) -> None:
    result = runner.invoke(app, ["settings", "--json", "--set", "jobs.claim_timeout_ms=90 s"])
    shown = json.loads(result.stdout)["jobs.claim_timeout_ms"]
    assert shown == {"value": 90_000, "source": "flag", "place": "--set jobs.claim_timeout_ms"}
    assert runner.invoke(app, ["settings", "--set", "jobs.claim_timeout_ms"]).exit_code == 2


def test_wrong_settings_end_with_their_own_exit_code_and_every_problem(runner: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "pinlater.toml"
    path.write_text("hots = 'x'\nprot = 1\n")
    result = runner.invoke(app, ["settings", "--config", str(path)])
    assert result.exit_code == exits.SETTINGS
    assert result.stdout == ""
    assert result.stderr.splitlines()[0] == "error: 2 problems with the settings:"


def test_a_password_from_standard_input_gives_its_hash_and_nothing_else(runner: CliRunner) -> None:
    result = runner.invoke(app, ["hash-password"], input="open sesame\n")
    assert result.exit_code == 0
    assert verify_password("open sesame", result.stdout.removesuffix("\n"))


@pytest.mark.parametrize("given", ["", "\n", "one\ntwo\n", b"\xff\n"])
def test_hash_password_refuses_an_invalid_password(runner: CliRunner, given: str | bytes) -> None:
    result = runner.invoke(app, ["hash-password"], input=given)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_a_password_is_never_taken_from_an_argument(runner: CliRunner) -> None:
    assert runner.invoke(app, ["hash-password", "open sesame"]).exit_code == 2


def test_on_a_terminal_the_password_is_asked_for_twice(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def prompt(text: str, **options: object) -> str:
        asked.append(options)
        return "open sesame"

    monkeypatch.setattr("pinlater.cli.commands.server.hash_password._on_terminal", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    result = runner.invoke(app, ["hash-password"])
    assert verify_password("open sesame", result.stdout.strip())
    assert asked == [{"hide_input": True, "confirmation_prompt": "Once more", "err": True}]
