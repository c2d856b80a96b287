"""One queue's consumer: claims jobs, executes them, stops them, and shuts down."""
