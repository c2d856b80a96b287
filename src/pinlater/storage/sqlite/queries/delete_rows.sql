DELETE FROM :table WHERE id IN (SELECT value FROM json_each(?))
