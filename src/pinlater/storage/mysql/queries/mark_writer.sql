-- First among the changes of every transaction: whoever asks for this row later waits until the transaction has ended.
INSERT INTO writers (writer, newest) VALUES (:writer, :newest) ON DUPLICATE KEY UPDATE newest = :newest
