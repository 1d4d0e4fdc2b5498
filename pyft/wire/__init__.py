"""What processes share, as tables in proxy/api/wire say it."""
