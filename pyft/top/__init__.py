"""`pyft top`: a job that runs, live on a terminal."""
