SELECT partition_name, partition_description FROM information_schema.partitions
WHERE table_schema = database() AND table_name = 'jobs' ORDER BY partition_ordinal_position
