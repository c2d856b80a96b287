DELETE FROM claims WHERE id IN (:ids)
