"""Rows and their state, for every decoder: admitted, pooled, copied to the host, taken out."""
