-- Goes through all jobs in progress, of which there are never many; asked only after a claim whose outcome nobody knew.
SELECT id FROM claims WHERE token IN (:tokens)
