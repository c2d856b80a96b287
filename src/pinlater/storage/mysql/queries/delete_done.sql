DELETE FROM done WHERE id IN (:ids)
