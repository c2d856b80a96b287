"""How many job slots the queues can use now, for programs that scale pools of workers."""
