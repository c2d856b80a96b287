"""The Helm chart: what it renders, and on a real API server."""
