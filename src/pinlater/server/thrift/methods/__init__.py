"""What this server knows of each method for jobs and queues: a record a method, in a module for each subject."""
