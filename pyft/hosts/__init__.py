"""Several hosts: the head that decides for all of them, places, leases, copies of images elsewhere."""
