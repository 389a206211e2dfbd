"""One token after another: the ordinary Transformer, its objective, greedy and beam search."""
