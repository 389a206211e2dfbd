"""Sequence to lattice: counted candidates, neural edge scores, exact search."""
