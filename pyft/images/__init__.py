"""Images of a job's processes: CRIU, memory objects, files and sockets of a process tree."""
