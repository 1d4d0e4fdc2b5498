"""The memory that joins a client and its server, and what in it is believed."""
