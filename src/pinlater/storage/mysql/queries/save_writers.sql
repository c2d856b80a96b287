INSERT INTO writers (writer, newest) VALUES :rows ON DUPLICATE KEY UPDATE newest = VALUES(newest)
