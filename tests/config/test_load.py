"""The layers of the settings, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.domain.passwords import hash_password
from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import Loaded, load
from pinlater.server.config.schema import keys
from pinlater.server.config.settings import Settings
from pinlater.server.config.store import POSSIBLE, StoreLocation
from pinlater.server.config.values import read_value


def problems(path: Path | None = None, **rest: object) -> tuple[str, ...]:
    """What `load` complains of."""
    with pytest.raises(SettingsError) as caught:
        load(path, **rest)  # type: ignore[arg-type]
    return caught.value.problems


def toml(folder: Path, text: str) -> Path:
    path = folder / "pinlater.toml"
    path.write_text(text)
    return path


def test_nothing_given_means_every_default_and_no_file_is_needed() -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert {str(origin) for origin in loaded.origins.values()} == {"default"}
    assert loaded.warnings == ()


def test_a_flag_overrides_a_variable_which_overrides_the_file_and_the_default(tmp_path: Path) -> None:
    path = toml(tmp_path, "[http]\nport = 1\nmax_connections = 1\nmax_body_bytes = 1\n")
    env = {"PINLATER_HTTP_PORT": "2", "PINLATER_HTTP_MAX_CONNECTIONS": "2"}
    loaded = load(path, env, {"http_port": 3})
    http = loaded.settings.http
    assert (http.port, http.max_connections, http.max_body_bytes) == (3, 2, 1)
    assert http.max_header_bytes == Settings().http.max_header_bytes
    assert [str(loaded.origins[f"http.{name}"]) for name in ("port", "max_connections", "max_body_bytes")] == [
        "flag --http-port",
        "environment PINLATER_HTTP_MAX_CONNECTIONS",
        f"file {path}:4: http.max_body_bytes",
    ]


def test_origins_name_a_source_for_every_key() -> None:
    assert set(load().origins) == set(keys())


def test_a_flag_that_is_not_given_is_none_and_changes_nothing() -> None:
    assert load(flags={"store": None, "http.port": None}).settings == Settings()


def test_all_problems_of_all_sources_are_reported_at_once(tmp_path: Path) -> None:
    path = toml(tmp_path, "hots = 'x'\n[http]\nport = 70000\n[job]\nx = 1\n")
    found = problems(path, env={"PINLATER_THRIFT_PORT": "many"}, flags={"store": "oracle:x", "thrift_prot": 1})
    assert [problem.removeprefix(str(tmp_path)) for problem in found] == [
        "--set thrift_prot: not a setting (did you mean thrift.port?)",
        "/pinlater.toml:1: unknown key hots (did you mean host?)",
        "/pinlater.toml:4: unknown table [job] (did you mean jobs?)",
        f"--store: 'oracle:x' is not a store: {POSSIBLE}",
        "PINLATER_THRIFT_PORT: 'many' is not a whole number",
        "/pinlater.toml:3: http.port: '70000' is out of range (0 to 65,535)",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[http]\nprot = 1\n", "unknown key http.prot (did you mean http.port?)"),
        ("claim_timeout_ms = 1\n", "unknown key claim_timeout_ms (did you mean jobs.claim_timeout_ms?)"),
        ("http = 1\n", "http is a table: write [http], and its keys below it"),
        ("[console]\nport = 1\n", "console is a key, not a table: write console = … (did you mean console_port?)"),
        ("[host]\nname = 'x'\n", "host is a key, not a table: write host = …"),
        ("thrift_port = 1\n", "unknown key thrift_port (did you mean thrift.port?)"),
        ("[thrift]\nconsole_port = 1\n", "unknown key thrift.console_port (did you mean console_port?)"),
        ("host = 1\n", "host: '1' is not text"),
        ("[http]\nport = true\n", "http.port: 'True' is not a whole number"),
        ("[http]\nport = 1.5\n", "http.port: '1.5' is not a whole number"),
        ("[jobs]\nmax_body_bytes = 0\n", "jobs.max_body_bytes: '0' is out of range (1 byte or more)"),
        ("[jobs]\npriority_levels = 128\n", "jobs.priority_levels: '128' is out of range (1 to 127)"),
        ("[jobs]\nmax_wait_ms = -1\n", "jobs.max_wait_ms: '-1' is out of range"),
        ("[http]\nidle_timeout_s = nan\n", "http.idle_timeout_s: 'nan' is not a number of seconds"),
        ("[http]\nallowed_hosts = [1]\n", "http.allowed_hosts: '[1]' is not a list of texts"),
        ("[telemetry]\nlog_level = 'loud'\n", "telemetry.log_level: log_level 'loud' is not one of debug"),
        ("[http\n", "not valid TOML"),
    ],
)
def test_a_bad_value_names_its_key_and_what_is_possible(tmp_path: Path, text: str, complaint: str) -> None:
    (found,) = problems(toml(tmp_path, text))
    assert complaint in found
    assert found.startswith(str(tmp_path / "pinlater.toml") + ":")


def test_a_complaint_about_a_table_names_where_its_setting_was_set_and_no_other_word_of_it(tmp_path: Path) -> None:
    """The complaint repeats the value, which has the name of a setting in it that was set in another line."""
    text = "[telemetry]\nlog_format = 'auto'\nlog_level = 'see log_format above'\n"
    (found,) = problems(toml(tmp_path, text))
    assert found.startswith(f"{tmp_path / 'pinlater.toml'}:3: telemetry.log_level: ")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [("90000", 90_000), ("90 s", 90_000), ("1.5min", 90_000), ("2 h", 7_200_000), ("7d", 604_800_000)],
)
def test_durations_may_be_written_with_a_unit(raw: str, expected: int) -> None:
    assert load(env={"PINLATER_JOBS_CLAIM_TIMEOUT_MS": raw}).settings.jobs.claim_timeout_ms == expected


@pytest.mark.parametrize("path", [key.path for key in keys().values() if key.type is bool])
@pytest.mark.parametrize("value", [True, False])
def test_a_switch_can_be_set_either_way_whatever_its_default(path: str, value: bool) -> None:
    assert read_value(keys()[path], value) is value
    assert read_value(keys()[path], str(value).lower()) is value


def test_durations_in_seconds_and_sizes_take_units_too() -> None:
    env = {"PINLATER_THRIFT_IDLE_TIMEOUT_S": "5 min", "PINLATER_JOBS_MAX_BODY_BYTES": "2 MiB"}
    settings = load(env=env).settings
    assert settings.thrift.idle_timeout_s == 300
    assert settings.jobs.max_body_bytes == 2 * 2**20


@pytest.mark.parametrize("raw", ["1.5", "9" * 50])
def test_a_bare_number_is_in_the_unit_of_the_name_and_whole(raw: str) -> None:
    assert "is not a whole number of milliseconds" in problems(env={"PINLATER_JOBS_MAX_WAIT_MS": raw})[0]
    assert load(env={"PINLATER_JOBS_MAX_WAIT_MS": "5"}).settings.jobs.max_wait_ms == 5


@pytest.mark.parametrize("raw", ["90", " 90 ", "1.5"])
def test_a_number_in_quotes_has_a_unit_in_a_file(tmp_path: Path, raw: str) -> None:
    """Elsewhere a duration without a unit is in seconds, so a value in quotes beside `_ms` could mean either."""
    [problem] = problems(toml(tmp_path, f"[jobs]\nmax_wait_ms = '{raw}'\n"))
    assert problem.endswith(
        f"pinlater.toml:2: jobs.max_wait_ms: {raw!r} has no unit: "
        "write milliseconds without quotes, or a duration such as '90s'"
    )
    given = toml(tmp_path, "[jobs]\nmax_wait_ms = 90\n[thrift]\nidle_timeout_s = '90'\nmax_frame_bytes = '16777216'\n")
    assert load(given).settings.jobs.max_wait_ms == 90
    assert load(given).settings.thrift.idle_timeout_s == 90
    assert load(given, flags={"jobs.max_wait_ms": "80"}).settings.jobs.max_wait_ms == 80


def test_a_unit_that_gives_a_fraction_is_refused() -> None:
    assert "whole number of milliseconds" in problems(env={"PINLATER_JOBS_MAX_WAIT_MS": "0.0001 s"})[0]


def test_relative_paths_in_a_file_count_from_the_file_and_elsewhere_from_here(tmp_path: Path) -> None:
    path = toml(tmp_path, "store = 'sqlite:data/jobs.db'\n")
    assert load(path).settings.store == StoreLocation("sqlite", tmp_path / "data/jobs.db")
    assert load(path, flags={"store": "sqlite:jobs.db"}).settings.store == StoreLocation("sqlite", Path("jobs.db"))


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql:", "names no shard file"),
        ("mysql:nowhere.json", "nowhere.json can't be read: No such file or directory"),
        ("mariadb://u@h/x", "did you mean mysql://…?"),
        ("redis:", "names no shard file: write redis:FILE"),
        ("sqlite:", "names no file"),
        ("sqlite::memory:", "a store in memory is called memory:"),
        ("sqlite://host/x", "names a host"),
        ("jobs.db", "did you mean sqlite:jobs.db?"),
        ("sqlit:x", "did you mean sqlite?"),
        ("sqlite:a\0b", "zero byte"),
        ("memory:x", "is not a store"),
    ],
)
def test_a_store_that_is_not_possible_is_refused_with_what_is(url: str, complaint: str) -> None:
    (found,) = problems(flags={"store": url})
    assert found.startswith("--store: ")
    assert complaint in found


def test_a_store_of_the_file_that_we_lack_is_no_problem_when_a_flag_names_another(tmp_path: Path) -> None:
    assert load(toml(tmp_path, "store = 'mysql:x'\n"), flags={"store": "memory:"}).settings.store.kind == "memory"


def test_the_listeners_follow_the_host_unless_they_have_their_own(tmp_path: Path) -> None:
    loaded = load(flags={"host": "0.0.0.0"}, env={"PINLATER_HTTP_HOST": "127.0.0.1"})
    assert (loaded.settings.thrift.host, loaded.settings.http.host) == ("0.0.0.0", "127.0.0.1")
    assert str(loaded.origins["thrift.host"]) == "flag --host"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_gives_no_warning(host: str) -> None:
    assert load(flags={"host": host}).warnings == ()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "pinlater.example"])
def test_listening_beyond_this_machine_is_warned_of(host: str) -> None:
    (warning,) = load(flags={"host": host}).warnings
    assert f"listening on {host} without access control" in warning


@pytest.mark.parametrize("address", ["pin1", "pin1:", ":9010", "pin1:0", "pin1:99999", "pin 1:9010", "pin1:９"])
def test_an_address_for_clients_that_is_none_is_a_problem(address: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(env={"PINLATER_ADVERTISED_THRIFT_ADDRESS": address})
    assert "write host:port" in str(caught.value)
    good = {"PINLATER_ADVERTISED_THRIFT_ADDRESS": "[::1]:9010"}
    assert load(env=good).settings.advertised_thrift_address == "[::1]:9010"


def test_memory_is_warned_of() -> None:
    assert "gone when the server stops" in load(flags={"store": "memory:"}).warnings[0]


@pytest.mark.parametrize("name", ["pinlater.toml", "pinlater.properties"])
def test_a_missing_file_is_a_problem(tmp_path: Path, name: str) -> None:
    assert "can't be read: No such file" in problems(tmp_path / name)[0]


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path / "pinlater.yaml") == (
        f"{tmp_path / 'pinlater.yaml'}: a settings file ends in .toml or .properties",
    )


def test_toml_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pinlater.toml"
    path.write_bytes(b"host = '\xff'\n")
    assert problems(path) == (f"{path}: not text in UTF-8",)


def test_the_file_may_be_named_by_a_variable(tmp_path: Path) -> None:
    path = toml(tmp_path, "[http]\nport = 7\n")
    assert load(env={"PINLATER_CONFIG": str(path)}).settings.http.port == 7


def test_a_frame_limit_below_the_body_limit_is_refused_with_its_line(tmp_path: Path) -> None:
    found = problems(toml(tmp_path, "[thrift]\nmax_frame_bytes = '1 MiB'\n"))
    assert any(
        "hold no body of jobs.max_body_bytes" in problem and ":2: thrift.max_frame_bytes" in problem
        for problem in found
    )


def test_a_budget_that_holds_no_request_and_its_answer_is_a_problem() -> None:
    """Such requests would never be carried out."""
    (problem,) = problems(flags={"thrift.max_buffered_bytes": "31 MiB"})
    assert "thrift.max_frame_bytes" in problem
    assert "33,554,432 are needed" in problem


def test_one_frame_size_bounds_requests_and_answers() -> None:
    """A service that fills answers for longer frames than the listener sends would have every full answer refused."""
    settings = load(flags={"thrift.max_frame_bytes": "32 MiB"}).settings
    assert settings.thrift.max_frame_bytes == settings.jobs.max_frame_bytes == 32 * 2**20
    (problem,) = problems(flags={"jobs.max_frame_bytes": "32 MiB"})
    assert "did you mean thrift.max_frame_bytes" in problem


def test_two_listeners_on_one_port_are_refused_and_port_0_is_not() -> None:
    assert "can't both listen on port 9010" in problems(flags={"http_port": 9010})[0]


@pytest.mark.parametrize("url", ["jaeger/{trace_id}", "https://jaeger.example.org"])
def test_a_url_of_traces_has_a_place_for_the_id(url: str) -> None:
    [problem] = problems(flags={"console_trace_url": url})
    assert "console_trace_url" in problem
    load(flags={"http_port": 0, "thrift_port": 0})


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"console_names": "jobs.example:8443"}, "not a host name such as"),
        ({"console_names": "jobs.example,a b"}, "not a host name such as"),
        ({"console_user_token_file": "users.token"}, "needs console_trusted_proxies"),
        ({"console_trusted_proxies": "0.0.0.0/0", "console_user_token_file": "users.token"}, "every address"),
        ({"console_trusted_proxies": "proxy", "console_user_token_file": "users.token"}, "not a network"),
        ({"console_user_header": "Authorization"}, "not a header"),
    ],
)
def test_names_and_proxies_of_the_console_are_checked(flags: dict[str, str], text: str) -> None:
    [problem] = problems(flags=flags)
    assert text in problem


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"access.masked_queues": "mail*"}, "set tokens_file too"),
        ({"access.masked_fields": "password"}, "set tokens_file too"),
        ({"access.masked_queues": "mail?", "access.tokens_file": "tokens.json"}, "not a pattern of queues"),
        ({"access.masked_fields": "a..b", "access.tokens_file": "tokens.json"}, "is not a field"),
        ({"access.unmasked_roles": "root"}, "is not a role"),
    ],
)
def test_masks_need_access_control_patterns_fields_and_roles(flags: dict[str, str], text: str) -> None:
    [problem] = problems(flags=flags)
    assert text in problem


def test_a_malformed_password_hash_is_refused_and_not_shown() -> None:
    (found,) = problems(env={"PINLATER_ADMIN_PASSWORD_HASH": "open-sesame"})
    assert found.startswith("PINLATER_ADMIN_PASSWORD_HASH: is not a password hash")
    assert "open-sesame" not in found


def test_a_password_hash_is_taken_over() -> None:
    stored = hash_password("open sesame")
    assert load(flags={"admin_password_hash": stored}).settings.admin_password_hash == stored


def test_a_file_of_limits_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    """At the start there are no old limits to keep, and a start without any would allow what the file was to limit."""
    path = toml(tmp_path, "queue_limits_file = 'limits.json'\nserver_set_file = 'servers'\n")
    found = problems(path)
    assert [problem.rpartition(":")[0].removeprefix(str(path)) for problem in found] == [
        f":1: queue_limits_file: {tmp_path}/limits.json can't be read",
        f":2: server_set_file: {tmp_path}/servers can't be read",
    ]


def test_a_file_of_limits_that_is_broken_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text("{")
    assert "limits.json is broken" in problems(flags={"queue_limits_file": tmp_path / "limits.json"})[0]


def test_an_empty_value_means_not_set(tmp_path: Path) -> None:
    loaded: Loaded = load(toml(tmp_path, "host = ''\n"), {"PINLATER_HTTP_PORT": " "}, {"store": ""})
    assert loaded.settings == Settings()


@pytest.mark.parametrize("path", ["thrift.idle_timeout_s", "thrift.write_stall_timeout_s", "http.handler_timeout_s"])
def test_a_timeout_that_would_cut_everything_at_once_is_refused(path: str) -> None:
    assert "is out of range (0.1 to 316,224,000 seconds)" in problems(flags={path: "0"})[0]


def test_a_backlog_beyond_what_the_system_can_hold_is_refused_before_anything_starts() -> None:
    assert "out of range" in problems(flags={"thrift.backlog": 2**31})[0]
