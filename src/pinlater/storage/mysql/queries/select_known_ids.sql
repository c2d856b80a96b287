SELECT jobs.id FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS wanted STRAIGHT_JOIN jobs ON jobs.id = wanted.id
