"""The photo index: what a model made of photos, kept so that they are found again by words or by a photo."""
