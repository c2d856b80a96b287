"""What this server knows about each method for jobs and queues: a record per method, in a module for each subject."""
