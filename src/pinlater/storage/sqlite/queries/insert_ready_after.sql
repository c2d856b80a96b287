-- The new jobs are those behind the highest id of before.
INSERT INTO ready (queue_id, priority, run_after_ms, id, changed)
SELECT queue_id, priority, run_after_ms, id, 0 FROM jobs WHERE id > ?
