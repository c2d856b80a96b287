-- The history of queues for charts; see SampleRange. No row of a job, and none of them is read by anything that hands out jobs.
CREATE TABLE samples (
  step_s INTEGER NOT NULL,
  at_ms INTEGER NOT NULL,
  queue TEXT NOT NULL,
  origin TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (step_s, at_ms, queue, origin)
) WITHOUT ROWID;
CREATE INDEX samples_by_queue ON samples (queue, step_s, at_ms);
