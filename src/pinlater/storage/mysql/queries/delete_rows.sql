-- With a list of ids, where it names a good part of the table, the database would go through all of it and wait for everybody's locks.
DELETE :table FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS gone STRAIGHT_JOIN :table FORCE INDEX (PRIMARY) ON :table.id = gone.id
