UPDATE queues SET paused = :paused, config = :config WHERE queue_id = :queue_id
