INSERT INTO ready (queue_id, priority, run_after_ms, id, changed)
SELECT queue_id, priority, run_after_ms, id, 0 FROM jobs WHERE id IN (SELECT value FROM json_each(?))
