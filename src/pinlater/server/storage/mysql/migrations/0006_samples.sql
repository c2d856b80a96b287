-- The history of queues for charts; see SampleRange. Servers of the schema before leave it alone.
CREATE TABLE IF NOT EXISTS samples (
  step_s INT UNSIGNED NOT NULL,
  at_ms BIGINT NOT NULL,
  queue VARBINARY(64) NOT NULL,
  origin VARBINARY(64) NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (step_s, at_ms, queue, origin),
  KEY samples_by_queue (queue, step_s, at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
