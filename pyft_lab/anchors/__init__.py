"""Published numbers, computed again from what their papers say."""
