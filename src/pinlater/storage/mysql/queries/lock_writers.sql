SELECT newest FROM writers WHERE writer BETWEEN :first AND :last FOR UPDATE
