-- Queues and their counters.

-- name: list_queues()
SELECT queue_id, name, paused, config FROM queues ORDER BY name;

-- name: find_queue(name)
SELECT queue_id FROM queues WHERE name = :name;

-- name: configure_queue(paused, config, queue_id)
UPDATE queues SET paused = :paused, config = :config WHERE queue_id = :queue_id;

-- name: list_dropped_queues()
SELECT queue_id FROM dropped_queues ORDER BY queue_id;

-- name: delete_dropped_queue(queue_id)
-- Nothing of it is left.
DELETE FROM dropped_queues WHERE queue_id = :queue_id;

-- name: find_deleted_queue(name)
-- When a queue of this name was last deleted.
SELECT deleted_at_ms FROM deleted_queues WHERE name = :name;
