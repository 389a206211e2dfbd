"""Beams over words or bundles of words, with the table and session that run them; length penalties and windows."""
