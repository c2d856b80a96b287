-- As `end_claims`, for one.
DELETE FROM claims WHERE id = :id AND ROW_COUNT() = 1 AND queue_id = :queue_id AND priority = :priority AND flags = 0 AND :fence
