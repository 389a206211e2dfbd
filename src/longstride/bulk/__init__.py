"""Large files in shards: each is translated by itself, by whoever is free, here or on other machines."""
