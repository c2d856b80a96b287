INSERT INTO meta (name, value) VALUES (:name, :value) ON DUPLICATE KEY UPDATE value = :value
