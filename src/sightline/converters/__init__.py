"""Readers of checkpoints that other projects released."""
