"""A model gets a drafter of its own: decode, train, choose lengths, check, race, write. One stage per file."""
