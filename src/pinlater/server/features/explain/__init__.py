"""Why a job waits."""
