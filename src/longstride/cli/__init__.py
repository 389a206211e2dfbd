"""One thin file per command; the only place that prints or reads YAML and the environment."""
