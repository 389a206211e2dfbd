"""A server for model folders: requests join running batches, and the APIs are those that people already speak."""
