-- Jobs are written once. Narrow rows beside them move: ready -> claims -> done.
-- Keys that are compared are VARBINARY: no collation, no padding. Every server that uses the shard sees the same tables.

CREATE TABLE IF NOT EXISTS meta (
  name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  value MEDIUMTEXT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The servers that use this shard now. A row whose heartbeat is too old may be taken over; `slot` makes ids and counters its own.
CREATE TABLE IF NOT EXISTS servers (
  slot SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
  incarnation BINARY(16) NOT NULL,
  name VARCHAR(300) NOT NULL,
  address VARCHAR(300) NOT NULL,
  started_at_ms BIGINT NOT NULL,
  seen_at_ms BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- The newest transaction of each writer, changed by that transaction: tells whether a COMMIT whose answer got lost was carried out,
-- and tells other servers that something happened.
CREATE TABLE IF NOT EXISTS writers (
  writer INT UNSIGNED NOT NULL PRIMARY KEY,
  newest BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- A deleted queue's id is never used again, so its remaining rows belong to no queue.
CREATE TABLE IF NOT EXISTS queues (
  queue_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(64) NOT NULL UNIQUE,
  paused TINYINT UNSIGNED NOT NULL DEFAULT 0,
  config TEXT NOT NULL,
  created_at_ms BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Deleted queues whose rows are still being freed.
CREATE TABLE IF NOT EXISTS dropped_queues (
  queue_id INT UNSIGNED NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Each writer adds to rows of its own; a queue's count is the sum over all of them (a single row may be negative).
-- The foreign key makes every transaction that counts fail if its queue was deleted meanwhile.
CREATE TABLE IF NOT EXISTS counters (
  queue_id INT UNSIGNED NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  writer INT UNSIGNED NOT NULL,
  pending BIGINT NOT NULL,
  future BIGINT NOT NULL,
  in_progress BIGINT NOT NULL,
  succeeded BIGINT NOT NULL,
  failed BIGINT NOT NULL,
  enqueued_total BIGINT NOT NULL,
  claimed_total BIGINT NOT NULL,
  succeeded_total BIGINT NOT NULL,
  failed_total BIGINT NOT NULL,
  retried_total BIGINT NOT NULL,
  PRIMARY KEY (queue_id, priority, writer),
  CONSTRAINT counters_of_queue FOREIGN KEY (queue_id) REFERENCES queues (queue_id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- options: JSON of what few jobs have (status, headers, unique, timeout_ms, expires_ms), else NULL.
-- Ids grow with the time, so a partition holds the jobs of some hours; it is dropped when they are all gone (`partitions.py`).
-- A row alone is no job: one that is in none of ready, claims and done is the rest of a deleted job.
CREATE TABLE IF NOT EXISTS jobs (
  id BIGINT NOT NULL PRIMARY KEY,
  queue_id INT UNSIGNED NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  run_after_ms BIGINT NOT NULL,
  attempts_allowed INT NOT NULL,
  created_at_ms BIGINT NOT NULL,
  options MEDIUMTEXT,
  body LONGBLOB NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin
PARTITION BY RANGE (id) (PARTITION later VALUES LESS THAN MAXVALUE);

-- The few jobs that outlive their partition. A statement that misses one in jobs looks here.
CREATE TABLE IF NOT EXISTS kept_jobs (
  id BIGINT NOT NULL PRIMARY KEY,
  queue_id INT UNSIGNED NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  run_after_ms BIGINT NOT NULL,
  attempts_allowed INT NOT NULL,
  created_at_ms BIGINT NOT NULL,
  options MEDIUMTEXT,
  body LONGBLOB NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Made at a job's first change; from then on it goes before what the job's own row says.
CREATE TABLE IF NOT EXISTS progress (
  id BIGINT NOT NULL PRIMARY KEY,
  attempts_allowed INT NOT NULL,
  attempts_remaining INT NOT NULL,
  attempts_ended INT NOT NULL,
  run_after_ms BIGINT NOT NULL,
  updated_at_ms BIGINT NOT NULL,
  custom_status TEXT NOT NULL,
  error_type VARCHAR(200) NOT NULL,
  error_text TEXT NOT NULL,
  attempts MEDIUMTEXT NOT NULL,
  body LONGBLOB
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- PENDING. flags: 1 has a row in progress, 2 is counted as future, 4 has options. size: bytes of the body.
CREATE TABLE IF NOT EXISTS ready (
  queue_id INT UNSIGNED NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  run_after_ms BIGINT NOT NULL,
  id BIGINT NOT NULL,
  flags TINYINT UNSIGNED NOT NULL,
  size INT UNSIGNED NOT NULL,
  PRIMARY KEY (queue_id, priority, run_after_ms, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- IN_PROGRESS. flags: 1 has a row in progress, 2 has a unique key that its end frees.
CREATE TABLE IF NOT EXISTS claims (
  id BIGINT NOT NULL PRIMARY KEY,
  queue_id INT UNSIGNED NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  claimed_at_ms BIGINT NOT NULL,
  deadline_ms BIGINT NOT NULL,
  timeout_ms BIGINT NOT NULL,
  flags TINYINT UNSIGNED NOT NULL,
  token TEXT NOT NULL,
  source TEXT NOT NULL,
  holder TEXT NOT NULL,
  KEY claims_by_deadline (deadline_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- SUCCEEDED (2) and FAILED (3). holder: who had the job last, or NULL.
CREATE TABLE IF NOT EXISTS done (
  id BIGINT NOT NULL PRIMARY KEY,
  queue_id INT UNSIGNED NOT NULL,
  state TINYINT UNSIGNED NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  finished_at_ms BIGINT NOT NULL,
  holder TEXT,
  KEY done_by_finish (queue_id, state, priority, finished_at_ms, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- Jobs that expire; a row may outlive its job's wait, the sweep looks.
CREATE TABLE IF NOT EXISTS expiries (
  expires_at_ms BIGINT NOT NULL,
  id BIGINT NOT NULL,
  PRIMARY KEY (expires_at_ms, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- until_ms: set for scope TIME only.
CREATE TABLE IF NOT EXISTS unique_keys (
  queue_id INT UNSIGNED NOT NULL,
  unique_key VARBINARY(1024) NOT NULL,
  scope TINYINT UNSIGNED NOT NULL,
  id BIGINT NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  until_ms BIGINT,
  PRIMARY KEY (queue_id, unique_key),
  KEY unique_keys_by_time (until_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- answer: the ids that were answered, eight bytes each; existing: JSON, NULL where no job was there already.
CREATE TABLE IF NOT EXISTS request_keys (
  queue_id INT UNSIGNED NOT NULL,
  request_key VARBINARY(255) NOT NULL,
  seen_at_ms BIGINT NOT NULL,
  fingerprint VARBINARY(64) NOT NULL,
  answer LONGBLOB NOT NULL,
  existing MEDIUMTEXT,
  PRIMARY KEY (queue_id, request_key),
  KEY request_keys_by_time (seen_at_ms)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
