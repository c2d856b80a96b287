SELECT queues.name, MIN(unique_keys.id) FROM unique_keys JOIN queues USING (queue_id)
GROUP BY unique_keys.queue_id
