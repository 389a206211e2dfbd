"""Beam bookkeeping and length penalties, shared by every beam search. Knows no model."""
