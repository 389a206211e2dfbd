"""Generating from several ends at once: bidirectional, semi-autoregressive and multi-directional decoding."""
