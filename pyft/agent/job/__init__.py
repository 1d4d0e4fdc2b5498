"""What the user has asked for: options, GPUs, the folder of the job."""
