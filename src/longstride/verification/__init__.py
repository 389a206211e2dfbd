"""The draft-verify-commit loop: a ragged session, acceptance as pure functions. Greedy is this loop with no draft."""
