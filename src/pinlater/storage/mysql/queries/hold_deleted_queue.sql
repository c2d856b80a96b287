-- Locks the row, also where there is none yet; 0 is no deletion.
INSERT INTO deleted_queues (name, deleted_at_ms) VALUES (:name, 0) ON DUPLICATE KEY UPDATE deleted_at_ms = deleted_at_ms
