"""Real database servers for tests, started on free ports and killed as a test pleases, and a network between that fails on demand."""
