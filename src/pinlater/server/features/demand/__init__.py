"""How many job slots the queues can use now, for what scales pools of workers."""
