-- Changes and their callers: kept for a time, and at most a number of them. `name` begins with the time.
CREATE TABLE IF NOT EXISTS audit (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(64) NOT NULL,
  content BLOB NOT NULL,
  UNIQUE KEY audit_by_name (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
