SHOW GLOBAL VARIABLES WHERE Variable_name IN
  ('version', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'binlog_format',
  'innodb_file_per_table', 'max_allowed_packet')
