UPDATE servers SET address = :address WHERE slot = :slot AND incarnation = :incarnation
