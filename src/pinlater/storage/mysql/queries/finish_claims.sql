INSERT INTO done (id, queue_id, state, priority, finished_at_ms, holder)
SELECT id, queue_id, 2, priority, :now_ms, holder FROM claims FORCE INDEX (PRIMARY) WHERE id IN (:ids)
