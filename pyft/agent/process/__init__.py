"""How our processes speak with each other, are named, counted and ended; nothing about jobs."""
