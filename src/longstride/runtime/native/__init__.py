"""The runtime of our own: graphs carried out by a small machine in C, compiled here when it is first needed."""
