"""What a server does besides handling jobs: a folder for each feature."""
