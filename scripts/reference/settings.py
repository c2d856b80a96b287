"""Writes the reference page of the settings from the dataclasses.

What a key is for is the docstring below its field, or that of `DatabaseSettings` for the stores in databases. A test fails when the page
is stale or a key is not explained.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Mapping
from itertools import pairwise

from pinlater.domain.descriptor import I64_MAX
from pinlater.server.config.original import REPLACED, SAME
from pinlater.server.config.schema import TEN_YEARS_MS, TYPES, Key, keys, tables
from pinlater.server.config.settings import INHERITED, Settings
from pinlater.server.storage.database_settings import DatabaseSettings
from pinlater.server.storage.mysql.settings import MysqlSettings
from pinlater.server.storage.redis.settings import RedisSettings

_HEAD = """\
# Settings

<!-- Written by `python -m scripts.reference`; a test compares it. Change the dataclasses, not this page. -->

Each setting has its value from the first of these places that has one:

1. a flag of `pinlater serve`: `--store` (or `--shards`), `--host`, `--thrift-port`, `--http-port`, `--tokens`, `--insecure`,
   and `--set KEY=VALUE` for all others, for example `--set jobs.claim_timeout_ms=90s`;
2. an environment variable: `PINLATER_`, then the table and the key in capitals, `PINLATER_THRIFT_PORT=9010`;
3. the settings file, which `--config` or `PINLATER_CONFIG` names: TOML (`pinlater.toml`), or the original's `.properties`;
4. the default.

```toml
store = "sqlite:/var/lib/pinlater/jobs.db"

[thrift]
port = 9010

[jobs]
claim_timeout_ms = "10m"
max_body_bytes = "1 MiB"
```

The server checks all settings before it starts, and reports all problems at once, with the file and line, variable or flag. It refuses
an unknown key in a file, and warns of an unknown variable. An empty value means not set. A key that ends in `_ms` or `_s` takes a
duration with its unit (`500ms`, `90s`, `10m` or `10 min`, `24h`, `7d`), or a plain number in the unit of its name; in TOML, milliseconds
have no quotes: the server refuses `claim_timeout_ms = "90"`, which could mean 90 s. A key with `bytes` in its name takes `512 KiB`,
`16 MiB` or a plain number. Relative paths start at the directory of the file that contains them; in variables and flags, at the working
directory.

The server ignores `PINLATER_PORT` and variables that begin with `PINLATER_PORT_` or `PINLATER_SERVICE_`, because Kubernetes sets them
beside a Service called `pinlater`.

`pinlater server settings` prints each value in force and its origin. If the settings are wrong, it exits with code 78.
"""

_TABLE_HEAD = "| key | default | range | what it is for |\n|---|---|---|---|"


def page() -> str:
    """The whole page, in Markdown."""
    sections = [_HEAD, _section("At the top of the file", "", Settings)]
    sections += [_section(f"`[{table}]`", table, owner) for table, owner in tables().items()]
    return "\n".join([*sections, _original()])


def _section(title: str, table: str, owner: type) -> str:
    notes = {**_shared_notes(owner), **_notes(owner)}
    rows = [_row(key, notes.get(key.field, "")) for key in keys().values() if key.table == table]
    return "\n".join([f"## {title}", "", inspect.cleandoc(owner.__doc__ or ""), "", _TABLE_HEAD, *rows, ""])


def _row(key: Key, note: str) -> str:
    inherited = INHERITED.get(key.path)
    default = f"that of `{inherited}`" if inherited else "not set" if key.default is None else f"`{_default_text(key)}`"
    return f"| `{key.field}` | {default} | {_range_text(key)} | {note.replace('|', chr(92) + '|')} |"


def _default_text(key: Key) -> str:
    default = key.default
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int) and default >= 100_000:
        return format(default, "_")
    return str(default)


def _range_text(key: Key) -> str:
    if key.type not in (int, float):
        return TYPES[key.type]
    if key.most in (math.inf, I64_MAX):
        return f"{key.least:,} or more"
    most = "10 years" if key.most in (TEN_YEARS_MS, TEN_YEARS_MS / 1000) else f"{key.most:,.0f}"
    return f"{key.least:,} to {most}"


def _original() -> str:
    """The original's keys and ours."""
    same = [
        f"| `{name}` | `{to.path}`{f' and `{to.also}`' if to.also else ''}{f', in {to.unit}' if to.unit else ''} |"
        for name, to in SAME.items()
    ]
    replaced = [f"| `{name}` | {text} |" for name, text in REPLACED.items()]
    head = "| key of the original | what takes its place |\n|---|---|"
    return "\n".join(
        [
            "## The original's keys",
            "",
            "In a `.properties` file these are understood; see [Come from the original](../how-to/coming-from-the-original.md).",
            "",
            "| key of the original | ours |\n|---|---|",
            "| `PINLATER_BACKEND`, `SHARDS_FILE`, `SQLITE_PATH` | `store`: `mysql` (also where the first is absent) or `redis` with the"
            " shard file, `sqlite` with the path, or `memory` |",
            *same,
            "| `SERVER_SET_ENABLED`, `SERVER_SET_PATH` | `server_set_file`, unless the first is `false` |",
            "",
            "These are accepted, with a warning:",
            "",
            head,
            *replaced,
            "",
        ]
    )


def _notes(owner: type) -> Mapping[str, str]:
    """The docstrings below the fields."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    statements = body.body if isinstance(body, ast.ClassDef) else []
    return {
        field.target.id: re.sub(r"\s+", " ", str(below.value.value)).strip()
        for field, below in pairwise(statements)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


def _shared_notes(owner: type) -> Mapping[str, str]:
    """What `DatabaseSettings` says of the fields of a store in databases."""
    if owner not in (MysqlSettings, RedisSettings):
        return {}
    shared = {name: getattr(DatabaseSettings, name) for name in dir(DatabaseSettings)}
    return {name: inspect.cleandoc(one.__doc__ or "") for name, one in shared.items() if isinstance(one, property)}
