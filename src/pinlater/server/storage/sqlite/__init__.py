"""The embedded store: one shard in one SQLite file, for one server.

Jobs are written once and never rewritten; narrow rows beside them move (`ready` → `claims` → `done`). One writer connection lives on
the event loop and all calls that arrive while a commit is under way share the next transaction (`writer`). Settings are read without the
store, so this module loads nothing: `shard` has the store, `settings` its settings.
"""
