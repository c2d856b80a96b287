INSERT IGNORE INTO future (run_after_ms, id, queue_id, priority) VALUES :rows
