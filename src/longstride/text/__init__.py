"""Text to ids and back: tokenizers, corpus files, token-budget batches. Knows no model."""
