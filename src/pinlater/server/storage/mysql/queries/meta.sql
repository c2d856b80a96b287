-- What the database keeps about itself, and what its server is set to.

-- name: load_meta(name)
SELECT value FROM meta WHERE name = :name;

-- name: current_meta(name)
-- Locked: it is compared next, then saved.
SELECT value FROM meta WHERE name = :name FOR UPDATE;

-- name: save_meta(rows)
INSERT INTO meta (name, value) VALUES :rows ON DUPLICATE KEY UPDATE value = VALUES(value);

-- name: make_meta(name, value)
-- The first of several servers decides.
INSERT IGNORE INTO meta (name, value) VALUES (:name, :value);

-- name: change_meta(name, value, known)
-- Changes nothing where another server has changed it meanwhile.
UPDATE meta SET value = :value WHERE name = :name AND value = :known;

-- name: select_highest_id()
-- Of the jobs that are there.
SELECT coalesce(max(id), 0) FROM jobs;

-- name: want_fresh_statistics()
-- For this connection. MySQL 8 would answer the next statement with numbers of up to a day ago; MariaDB keeps none, and passes over the comment.
SET @nothing = 0 /*!80000 , SESSION information_schema_stats_expiry = 0 */;

-- name: select_size()
-- From the statistics of the tables, which InnoDB has in memory.
SELECT coalesce(sum(data_length + index_length), 0) FROM information_schema.tables WHERE table_schema = database();

-- name: load_server_settings()
-- What `server_requirements.py` checks.
SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('version', 'version_comment', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format',
  'innodb_file_per_table', 'max_allowed_packet', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled');

-- name: load_replication_status()
-- Whether a COMMIT waits for a replica now. The second name is that of MySQL from 8.0.26 on.
SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status');
