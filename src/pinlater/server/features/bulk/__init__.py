"""Changes of many jobs that a server carries out by itself, and takes back."""
