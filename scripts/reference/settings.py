"""Makes the tables of the settings from the dataclasses.

The docstring below a field says what its key is for, or that of `DatabaseSettings` for the stores in databases. A test fails if a key is
not explained.
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

_TABLE_HEAD = "| key | default | range | what it is for |\n|---|---|---|---|"


def tables_of_keys() -> str:
    """The sections of all tables and of the original's keys, in Markdown."""
    sections = [_section("At the top of the file", "", Settings)]
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
