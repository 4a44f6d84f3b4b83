"""A page and an HTTP API before one model: `sightline serve`."""
