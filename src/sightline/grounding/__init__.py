"""Which box a word points at, what in a photo supports a noun, and the confidence of a caption."""
