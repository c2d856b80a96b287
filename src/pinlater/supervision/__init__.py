"""The common part of server and worker processes: supervisors that keep them running, signals, and the format of their logs."""
