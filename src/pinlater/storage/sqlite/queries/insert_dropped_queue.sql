INSERT INTO dropped_queues (queue_id) VALUES (?)
