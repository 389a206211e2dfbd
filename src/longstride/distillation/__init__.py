"""A teacher decodes a corpus into a new one, shard by shard, with a manifest. Knows teachers only by the contract."""
