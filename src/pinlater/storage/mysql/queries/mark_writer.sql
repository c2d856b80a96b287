-- First among the changes of every transaction: whoever asks for this row later waits until the transaction has ended.
-- NULL, which the column refuses, where the slot is another server's now: its numbers are beyond ours.
INSERT INTO writers (writer, newest) VALUES (:writer, :newest)
ON DUPLICATE KEY UPDATE newest = IF(newest BETWEEN :first AND :last, :newest, NULL)
