-- When queues were deleted, for a day: nothing older makes them again.
CREATE TABLE deleted_queues (
  name TEXT PRIMARY KEY,
  deleted_at_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX deleted_queues_by_time ON deleted_queues (deleted_at_ms);
