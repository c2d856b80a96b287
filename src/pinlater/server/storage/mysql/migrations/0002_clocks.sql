-- How far the time that a server goes by is ahead of the database's, as it said last. A server that comes later goes by the same, whatever
-- the database's clock has done since. Counts only beside the server's own row, with the same incarnation.
CREATE TABLE IF NOT EXISTS clocks (
  slot SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
  incarnation BINARY(16) NOT NULL,
  ahead_ms BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
