"""The MySQL store: a shard is a database on a MySQL (8.0 or newer) or MariaDB (10.6 or newer) server.

The driver is an extra. Settings are read without it, so this module loads nothing: `shard` has the store, `settings` where a shard is.
"""
