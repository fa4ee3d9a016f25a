"""How, not what: packed rows, blocks of sentences, the cache and matrix products that make the model fast."""
