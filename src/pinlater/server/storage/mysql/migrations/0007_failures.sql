-- Failed attempts in groups, which are counted as they fail. Servers of the schema before do not count.
CREATE TABLE IF NOT EXISTS failures (
  queue_id INT UNSIGNED NOT NULL,
  name VARBINARY(16) NOT NULL,
  task VARBINARY(800) NOT NULL,
  error_type VARBINARY(1024) NOT NULL,
  pattern VARBINARY(800) NOT NULL,
  failures BIGINT NOT NULL,
  first_ms BIGINT NOT NULL,
  last_ms BIGINT NOT NULL,
  priority TINYINT UNSIGNED NOT NULL,
  id BIGINT NOT NULL,
  PRIMARY KEY (queue_id, name),
  KEY failures_by_time (last_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- By hours since 1970.
CREATE TABLE IF NOT EXISTS failure_hours (
  queue_id INT UNSIGNED NOT NULL,
  hour INT UNSIGNED NOT NULL,
  name VARBINARY(16) NOT NULL,
  failures BIGINT NOT NULL,
  PRIMARY KEY (queue_id, hour, name),
  KEY failure_hours_by_hour (hour)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
