"""The runtime of our own: drawings carried out by a small machine in C, compiled here when it is first needed."""
