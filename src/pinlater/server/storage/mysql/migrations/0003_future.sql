-- Waiting jobs that are counted as future, by when that ends: the sweep that counts them as due finds them here, however many others wait.
-- A row may outlive its job's wait, the sweep looks. What a server of the schema before makes meanwhile has none: such a job counts as
-- future until it is claimed.
CREATE TABLE IF NOT EXISTS future (
  run_after_ms BIGINT NOT NULL,
  id BIGINT NOT NULL,
  queue_id INT UNSIGNED NOT NULL,
  priority SMALLINT UNSIGNED NOT NULL,
  PRIMARY KEY (run_after_ms, id)
) ENGINE = InnoDB;

INSERT IGNORE INTO future (run_after_ms, id, queue_id, priority)
SELECT run_after_ms, id, queue_id, priority FROM ready WHERE flags & 2;
