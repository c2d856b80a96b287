SELECT MIN(run_after_ms) FROM ready WHERE queue_id = :queue_id AND priority = :priority AND run_after_ms >= :from_ms
