"""Tests of shards that several servers use at once. Each test runs on MariaDB, on MySQL 8 and on Redis."""
