INSERT IGNORE INTO dropped_queues (queue_id) VALUES :rows
