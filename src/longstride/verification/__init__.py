"""The draft-verify-commit loop: its ragged session and acceptance as pure functions of tensors. Greedy is this loop with no draft."""
