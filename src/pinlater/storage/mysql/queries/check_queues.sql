-- Fails where one of these queues is gone: unsigned, the difference may not be less than zero.
SELECT CAST(COUNT(*) AS UNSIGNED) - :count FROM queues WHERE queue_id IN (:ids)
