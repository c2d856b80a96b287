"""The embedded store: one shard in one SQLite file, for one server.

Jobs are written once and never rewritten; narrow rows beside them move (`ready` → `claims` → `done`). One writer connection lives on
the event loop and all calls that arrive while a commit is under way share the next transaction (`writer`).
"""

from pinlater.server.storage.sqlite.settings import SqliteSettings
from pinlater.server.storage.sqlite.shard import SqliteShard

__all__ = ["SqliteSettings", "SqliteShard"]
