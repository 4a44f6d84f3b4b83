"""Model files: checkpoints, the shipped bundle, int8 weights, and checkpoints that other projects released."""
