"""The plain one-pass model: every word at once, each by its position and the source alone."""
