SELECT count(*) FROM (SELECT 1 FROM done WHERE id >= :from_id AND id < :to_id LIMIT :limit) AS found
