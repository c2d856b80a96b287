"""Settings from environment variables: PINLATER_, then the key's path in capitals, with `_` between table and field.

Unknown variables only cause warnings, because other programs set such variables too. Kubernetes does so in every pod for each Service:
one called `pinlater` gives PINLATER_PORT, PINLATER_PORT_* and PINLATER_SERVICE_*, none of which we define; one called `pinlater-thrift`
gives PINLATER_THRIFT_PORT=tcp://..., which is recognised by its value and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pinlater.server.config.errors import did_you_mean
from pinlater.server.config.schema import ENV_PREFIX, Key, keys
from pinlater.server.config.sources import Given, Origin, SettingsSource

OTHER_VARIABLES = frozenset(
    {
        "PINLATER_CONFIG",
        "PINLATER_SERVERS",
        "PINLATER_ENQUEUE_SERVERS",
        "PINLATER_TOKEN",
        "PINLATER_TOKEN_FILE",
        "PINLATER_TLS",
        "PINLATER_TLS_CA_FILE",
        "PINLATER_TLS_SERVER_NAME",
        "PINLATER_TLS_CLIENT_CERTIFICATE_FILE",
        "PINLATER_TLS_CLIENT_KEY_FILE",
    }
)
"""Variables that the command line and the client read themselves."""

_KUBERNETES = re.compile(
    r"PINLATER_[A-Z0-9_]+_(PORT_[0-9]+_(TCP|UDP|SCTP)(_(PORT|PROTO|ADDR))?|SERVICE_(HOST|PORT(_\w+)?))"
)
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)


def variables() -> Mapping[str, Key]:
    """Returns every variable that is a setting."""
    return {key.variable: key for key in keys().values()}


def is_reserved(variable: str) -> bool:
    """Returns whether Kubernetes sets such a variable for a Service called `pinlater`."""
    return variable == "PINLATER_PORT" or variable.startswith(("PINLATER_PORT_", "PINLATER_SERVICE_"))


def read_environment(env: Mapping[str, str]) -> SettingsSource:
    """Returns the settings from the environment. An empty value means not set."""
    known = variables()
    given: dict[str, Given] = {}
    warnings: list[str] = []
    for name in sorted(env):
        value, key = env[name].strip(), known.get(name)
        if not value or not name.startswith(ENV_PREFIX) or name in OTHER_VARIABLES or _by_kubernetes(name, value, key):
            continue
        if key is None:
            warnings.append(f"{name}: not a setting, ignored{did_you_mean(name, known)}")
        elif _SERVICE_LINK.match(value):
            warnings.append(
                f"{name}: ignored, because {value[:80]!r} is what Kubernetes sets beside a Service of such a name"
            )
        else:
            given[key.path] = Given(key.path, value, Origin("environment", name))
    return SettingsSource(given, (), tuple(warnings))


def _by_kubernetes(name: str, value: str, key: Key | None) -> bool:
    if key is not None:
        return False
    is_link = name.endswith("_PORT") and _SERVICE_LINK.match(value) is not None
    return is_link or is_reserved(name) or _KUBERNETES.fullmatch(name) is not None
