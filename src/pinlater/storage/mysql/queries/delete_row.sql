DELETE FROM :table WHERE id = :id
