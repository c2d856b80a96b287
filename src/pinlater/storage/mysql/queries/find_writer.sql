SELECT newest FROM writers WHERE writer = :writer FOR UPDATE
