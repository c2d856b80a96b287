-- Failed attempts in groups, which are counted as they fail.
CREATE TABLE failures (
  queue_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  task TEXT NOT NULL,
  error_type TEXT NOT NULL,
  pattern TEXT NOT NULL,
  failures INTEGER NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  id INTEGER NOT NULL,
  PRIMARY KEY (queue_id, name)
) WITHOUT ROWID;
CREATE INDEX failures_by_time ON failures (last_ms);
-- By hours since 1970.
CREATE TABLE failure_hours (
  queue_id INTEGER NOT NULL,
  hour INTEGER NOT NULL,
  name TEXT NOT NULL,
  failures INTEGER NOT NULL,
  PRIMARY KEY (queue_id, hour, name)
) WITHOUT ROWID;
CREATE INDEX failure_hours_by_hour ON failure_hours (hour);
