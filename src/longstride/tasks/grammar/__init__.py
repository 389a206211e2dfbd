"""A small grammar of English sentences with numbers, times, dates and prices, and their German translations."""
