"""`make soak`: hours of mixed load on one file, with kills, restarts and stops in between."""
