DELETE expiries FROM JSON_TABLE(:keys, '$[*]' COLUMNS (expires_at_ms BIGINT PATH '$[0]', id BIGINT PATH '$[1]')) AS gone
STRAIGHT_JOIN expiries FORCE INDEX (PRIMARY) ON expiries.expires_at_ms = gone.expires_at_ms AND expiries.id = gone.id
