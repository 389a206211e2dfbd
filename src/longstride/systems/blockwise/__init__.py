"""Blockwise parallel decoding: heads predict the next k tokens from one state; the model itself verifies them."""
