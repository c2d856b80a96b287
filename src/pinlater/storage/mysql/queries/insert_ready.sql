INSERT INTO ready (queue_id, priority, run_after_ms, id, flags, size) VALUES :rows
