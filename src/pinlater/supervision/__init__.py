"""What server and worker processes share: supervisors that keep them running, signals, and the format of their logs."""
