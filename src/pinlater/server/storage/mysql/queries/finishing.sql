-- Plain acks, all of a call at once. Other acks: `changing.sql`.

-- name: lock_claims(ids)
-- Locked: the acks are compared with the claims next. With the ordering keys of those whose flags say that they have one (4).
SELECT claims.id, claims.queue_id, claims.priority, claims.flags, claims.token, ordered.ordering_key
FROM claims FORCE INDEX (PRIMARY)
LEFT JOIN ordered FORCE INDEX (PRIMARY) ON ordered.id = CASE WHEN claims.flags & 4 THEN claims.id END
WHERE claims.id IN (:ids) FOR UPDATE;

-- name: finish_claims(now_ms, ids)
-- State 2 is SUCCEEDED. As in `insert_done`.
INSERT INTO done (id, queue_id, state, priority, finished_at_ms, holder)
SELECT id, queue_id, 2, priority, :now_ms, holder FROM claims FORCE INDEX (PRIMARY) WHERE id IN (:ids)
ON DUPLICATE KEY UPDATE state = VALUES(state), priority = VALUES(priority), finished_at_ms = VALUES(finished_at_ms), holder = VALUES(holder);

-- name: end_claim(id, queue_id, priority, fence)
-- As `end_claims`, for one job.
DELETE FROM claims WHERE id = :id AND ROW_COUNT() = 1 AND queue_id = :queue_id AND priority = :priority AND flags = 0 AND :fence;

-- name: end_claims(claims, count)
-- Deletes the claims that are as the acks suppose, if the statement before copied as many.
DELETE claims FROM JSON_TABLE(:claims, '$[*]' COLUMNS (
  id BIGINT PATH '$[0]', queue_id INT UNSIGNED PATH '$[1]', priority SMALLINT UNSIGNED PATH '$[2]', fenced TINYINT PATH '$[3]',
  token VARCHAR(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[4]'
)) AS ended
STRAIGHT_JOIN claims FORCE INDEX (PRIMARY) ON claims.id = ended.id AND claims.queue_id = ended.queue_id AND claims.priority = ended.priority
  AND (NOT ended.fenced OR BINARY claims.token = BINARY ended.token)
WHERE ROW_COUNT() = :count AND claims.flags = 0;
