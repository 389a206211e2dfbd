"""The name by which the model that comes with the package is asked for."""

BUNDLED = "bundled"
