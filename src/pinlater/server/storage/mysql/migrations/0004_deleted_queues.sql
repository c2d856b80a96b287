-- When queues were deleted, for a day: nothing older makes them again.
CREATE TABLE IF NOT EXISTS deleted_queues (
  name VARBINARY(64) NOT NULL PRIMARY KEY,
  deleted_at_ms BIGINT NOT NULL,
  KEY deleted_queues_by_time (deleted_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
