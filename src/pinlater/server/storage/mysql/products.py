"""Servers that speak MySQL's protocol and are known to break a promise of ours. Any other counts as MySQL or MariaDB."""

from __future__ import annotations

_NO_FOREIGN_KEYS = "SingleStore, which has no foreign keys: jobs could be stored in a queue that was deleted"
_NO_JSON_TABLE = "Vitess (as PlanetScale is), which has no JSON_TABLE: most of our changes need it"
# By a word in the server's version or comment, in lower case.
_REFUSED = {
    "tidb": "TiDB, which locks no row for SELECT ... FOR UPDATE SKIP LOCKED: two servers would hand out one job",
    "vitess": _NO_JSON_TABLE,
    "planetscale": _NO_JSON_TABLE,  # some of its servers report this instead
    "dolt": "Dolt, which has no locks of rows: two servers would hand out one job",
    "singlestore": _NO_FOREIGN_KEYS,
    "memsql": _NO_FOREIGN_KEYS,
}


def refusal_of(banner: str) -> str | None:
    """Returns why the server with this version or comment can't be used, or None if it can."""
    said = banner.lower()
    reason = next((reason for word, reason in _REFUSED.items() if word in said), None)
    return None if reason is None else f"it is {reason}; use MySQL or MariaDB"
