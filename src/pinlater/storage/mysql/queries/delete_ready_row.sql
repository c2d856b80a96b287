DELETE FROM ready WHERE queue_id = :queue_id AND priority = :priority AND run_after_ms = :run_after_ms AND id = :id
