"""Which box a word points at, what in a photo supports a noun, and how far a caption is to be trusted."""
