"""What has happened in a job: past jobs, lanes of their ranks, as a page or for Perfetto."""
