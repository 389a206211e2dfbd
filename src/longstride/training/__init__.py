"""One training loop for every objective; knows systems only by the contract."""
