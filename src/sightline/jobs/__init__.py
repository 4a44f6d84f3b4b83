"""One resumable map over photos, and the jobs that are made of it."""
