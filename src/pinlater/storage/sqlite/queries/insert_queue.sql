INSERT INTO queues (name, created_at_ms) VALUES (?, ?)
