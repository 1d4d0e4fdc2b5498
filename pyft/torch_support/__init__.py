"""What runs inside the user's Python: `site/sitecustomize.py` is found through PYTHONPATH."""
