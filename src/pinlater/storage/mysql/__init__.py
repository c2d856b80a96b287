"""The MySQL store: a shard is a database on a MySQL (8.0 or newer) or MariaDB (10.6 or newer) server."""

from pinlater.storage.mysql.settings import Endpoint, MysqlSettings
from pinlater.storage.mysql.shard import MysqlShard

__all__ = ["Endpoint", "MysqlSettings", "MysqlShard"]
