"""Vision: from pixels to scenes, and the feature store."""
