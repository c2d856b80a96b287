SELECT jobs.id FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS wanted STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = wanted.id
