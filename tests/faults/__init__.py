"""What goes wrong with databases, networks and servers under a steady load, and the verdict over what the clients saw."""
