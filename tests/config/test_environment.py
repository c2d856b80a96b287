"""Variables, and the ones that others set."""

from __future__ import annotations

import pytest

from pinlater.server.config.environment import is_reserved, variables
from pinlater.server.config.load import load
from pinlater.server.config.schema import keys


def test_we_define_no_variable_that_a_kubernetes_service_called_pinlater_would_set() -> None:
    defined = list(variables())
    assert [name for name in defined if is_reserved(name)] == []
    assert "PINLATER_STORE" in defined


def test_every_setting_has_a_variable_and_a_flag_of_its_own() -> None:
    assert len(variables()) == len(keys())
    assert len({key.flag for key in keys().values()}) == len(keys())


def test_environment_variables_of_kubernetes_are_ignored_without_a_warning() -> None:
    env = {
        "PINLATER_PORT": "tcp://10.0.0.7:9010",
        "PINLATER_PORT_9010_TCP": "tcp://10.0.0.7:9010",
        "PINLATER_PORT_9010_TCP_ADDR": "10.0.0.7",
        "PINLATER_PORT_9010_TCP_PORT": "9010",
        "PINLATER_PORT_9010_TCP_PROTO": "tcp",
        "PINLATER_SERVICE_HOST": "10.0.0.7",
        "PINLATER_SERVICE_PORT": "9010",
        "PINLATER_SERVICE_PORT_THRIFT": "9010",
        "PINLATER_WORKER_SERVICE_HOST": "10.0.0.8",
        "PINLATER_WORKER_PORT_80_TCP_ADDR": "10.0.0.8",
        "PINLATER_WORKER_PORT": "tcp://10.0.0.8:80",
    }
    loaded = load(env=env)
    assert loaded == load()


def test_the_link_of_a_service_called_pinlater_thrift_is_ignored_with_a_warning() -> None:
    loaded = load(env={"PINLATER_THRIFT_PORT": "tcp://10.0.0.7:9010"})
    assert loaded.settings.thrift.port == 9010
    assert "Kubernetes" in loaded.warnings[0]


def test_an_unknown_variable_only_warns() -> None:
    loaded = load(env={"PINLATER_HTTP_PROT": "1", "OTHER": "x"})
    assert loaded.warnings == ("PINLATER_HTTP_PROT: not a setting, ignored (did you mean PINLATER_HTTP_PORT?)",)


def test_a_variable_that_the_command_line_reads_itself_gives_no_warning() -> None:
    assert load(env={"PINLATER_TOKEN": "x"}).warnings == ()


@pytest.mark.parametrize("text", ["a,b", " a , b ,"])
def test_a_list_is_parted_by_commas(text: str) -> None:
    assert load(env={"PINLATER_HTTP_ALLOWED_HOSTS": text}).settings.http.allowed_hosts == ("a", "b")
