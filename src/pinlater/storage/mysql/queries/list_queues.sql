SELECT queue_id, name, paused, config FROM queues ORDER BY name
