-- The machine and port of the database that each server of the shard is connected to. Counts only beside the server's own row, with the same
-- incarnation; servers of the schema before have none.
CREATE TABLE IF NOT EXISTS nodes (
  slot SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
  incarnation BINARY(16) NOT NULL,
  node VARCHAR(300) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
