"""What `pyft lab` is told, and what it tells: commands, tables, figures, a page."""
