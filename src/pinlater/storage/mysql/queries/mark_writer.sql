-- Among the changes of every transaction: whoever asks for this row later waits until the transaction has ended.
-- NULL, which the column refuses, where the slot is another server's now: its numbers are beyond ours; or where the change before
-- didn't meet what it should have.
INSERT INTO writers (writer, newest) VALUES (:writer, IF(:condition, :newest, NULL))
ON DUPLICATE KEY UPDATE newest = IF(newest BETWEEN :first AND :last AND :condition, :newest, NULL)
