-- Jobs with an ordering key that have not ended, by the number that says their places. due_ms: when the job is due by itself
-- (`relational/ordering.py`).
CREATE TABLE ordered (
  id INTEGER PRIMARY KEY,
  queue_id INTEGER NOT NULL,
  ordering_key TEXT NOT NULL,
  number INTEGER NOT NULL,
  due_ms INTEGER NOT NULL
);
CREATE UNIQUE INDEX ordered_by_key ON ordered (queue_id, ordering_key, number);
