DELETE FROM done WHERE id IN (SELECT value FROM json_each(?))
