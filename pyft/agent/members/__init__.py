"""A member is a client on one device with its channel and its server; which rank it is."""
