UPDATE JSON_TABLE(:keys, '$[*]' COLUMNS (id BIGINT PATH '$[0]', deadline_ms BIGINT PATH '$[1]', flags INT PATH '$[2]')) AS renewed
STRAIGHT_JOIN claims FORCE INDEX (PRIMARY) ON claims.id = renewed.id
SET claims.deadline_ms = renewed.deadline_ms, claims.flags = renewed.flags
