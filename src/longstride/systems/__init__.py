"""One folder per way of generating; systems never import each other."""
