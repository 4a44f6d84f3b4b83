"""The typed function behind each command of `sightline`."""
