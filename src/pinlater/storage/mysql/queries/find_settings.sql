SELECT paused, config FROM queues WHERE name = :name
