"""Draft and verify: a non-autoregressive drafter, or the source itself, proposes; the Transformer verifies."""
