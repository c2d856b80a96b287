INSERT INTO queues (name, paused, config, created_at_ms) VALUES (?, ?, ?, ?)
