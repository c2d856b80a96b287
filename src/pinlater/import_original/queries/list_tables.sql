-- The original's tables that this user may see. In MySQL's pattern language an underscore is a wildcard.
SELECT table_schema, table_name
FROM information_schema.tables
WHERE table_schema LIKE 'plq\_%' AND table_name LIKE 'jobs\_p%' AND table_type = 'BASE TABLE'
