"""Everyone's files: one reader a format, all giving `CaptionSet` or `SceneSource`."""
