-- Those that are as they were thought to be, if the statement before copied as many.
DELETE claims FROM JSON_TABLE(:claims, '$[*]' COLUMNS (
  id BIGINT PATH '$[0]', queue_id INT UNSIGNED PATH '$[1]', priority SMALLINT UNSIGNED PATH '$[2]', fenced TINYINT PATH '$[3]',
  token VARCHAR(250) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[4]'
)) AS ended
STRAIGHT_JOIN claims FORCE INDEX (PRIMARY) ON claims.id = ended.id AND claims.queue_id = ended.queue_id AND claims.priority = ended.priority
  AND (NOT ended.fenced OR BINARY claims.token = BINARY ended.token)
WHERE ROW_COUNT() = :count AND claims.flags = 0
