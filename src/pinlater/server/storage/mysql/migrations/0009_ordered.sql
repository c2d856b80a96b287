-- Jobs with an ordering key that have not ended, by the number that says their places. due_ms: when the job is due by itself
-- (`relational/ordering.py`).
CREATE TABLE IF NOT EXISTS ordered (
  id BIGINT NOT NULL PRIMARY KEY,
  queue_id INT UNSIGNED NOT NULL,
  ordering_key VARBINARY(128) NOT NULL,
  number BIGINT NOT NULL,
  due_ms BIGINT NOT NULL,
  UNIQUE KEY ordered_by_key (queue_id, ordering_key, number)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- A transaction that changes which job of a key is first locks the row of the key. There is one while the key has jobs.
CREATE TABLE IF NOT EXISTS ordering_keys (
  queue_id INT UNSIGNED NOT NULL,
  ordering_key VARBINARY(128) NOT NULL,
  PRIMARY KEY (queue_id, ordering_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
-- Each server has the schema that its program is written for, those of the schema before 0. Before the first job with an ordering key, 0 goes
-- from this table: then no such server gets a slot any more.
CREATE TABLE IF NOT EXISTS programs (
  program SMALLINT UNSIGNED NOT NULL PRIMARY KEY
) ENGINE = InnoDB;
INSERT IGNORE INTO programs (program) VALUES (0);
ALTER TABLE servers ADD COLUMN program SMALLINT UNSIGNED NOT NULL DEFAULT 0, ADD FOREIGN KEY (program) REFERENCES programs (program);
