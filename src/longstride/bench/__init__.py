"""Workload, measurement, records, and the tables and plots rendered from them."""
