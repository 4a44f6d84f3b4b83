"""`python -m sightline`."""

import sys

from sightline.cli.commands import main

sys.exit(main())
