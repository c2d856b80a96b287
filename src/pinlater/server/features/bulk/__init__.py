"""Changes of many jobs that a server makes in the background, and can undo."""
