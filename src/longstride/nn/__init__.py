"""The Transformer that all systems share: attention, layers, positions, cache, losses. Knows no way of generating."""
