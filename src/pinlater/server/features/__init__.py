"""What a server does besides its jobs: a folder for each feature."""
