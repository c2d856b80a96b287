UPDATE progress SET body = :body WHERE id = :id
