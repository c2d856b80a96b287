DELETE FROM progress WHERE id IN (:ids)
