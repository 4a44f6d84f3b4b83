"""The command line: `commands` lists the commands, and each has a file with its typed function."""

from sightline.cli.commands import main

__all__ = ["main"]
