DELETE FROM servers WHERE slot = :slot AND incarnation = :incarnation
