"""Numbers to trust: language, grounding, retrieval and diversity metrics without Java."""
