"""From log-probabilities to captions: one batched implementation for every captioner.

`decode` gives ids and scores, `captions` what people read; `strategies` say how to search, `rules` what may be said.
"""
