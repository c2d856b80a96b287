INSERT INTO done (id, queue_id, state, priority, finished_at_ms, holder) VALUES :rows
