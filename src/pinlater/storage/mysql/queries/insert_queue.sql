INSERT IGNORE INTO queues (name, paused, config, created_at_ms) VALUES (:name, 0, '{}', :now_ms)
