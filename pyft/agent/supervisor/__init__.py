"""The parent of all processes of a job, the agent's link to it, and the launcher before it."""
