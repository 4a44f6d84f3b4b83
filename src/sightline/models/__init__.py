"""The five papers' models and their baselines: captioners and matchers, one method a file."""
