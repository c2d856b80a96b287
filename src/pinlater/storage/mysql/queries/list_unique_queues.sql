SELECT queues.name, min(unique_keys.id) FROM unique_keys JOIN queues ON queues.queue_id = unique_keys.queue_id
GROUP BY queues.name ORDER BY queues.name
