"""What captions that are asked for may and must say, checked before any photo is looked at."""

from __future__ import annotations

import torch

from sightline.decoding.constraints import Rules, WordRules
from sightline.decoding.length_options import phrases_of, rules_of
from sightline.errors import ConfigError
from sightline.models.captioner import Captioner
from sightline.models.reader import Reader
from sightline.serve.refusal import Refusal
from sightline.serve.request_schemas import CaptionRequest


def rules_for(ask: CaptionRequest, says: Reader[Captioner]) -> Rules | None:
    """The rules of a request, None where captions are free; a refusal where nobody could keep them."""
    phrases = phrases_of(ask.must_include)
    if phrases and ask.beam == 1:
        raise Refusal(409, "`must_include` needs a beam, which can look ahead", "ask for a beam of 3 or more")
    rules = rules_of(str(ask.length), phrases)
    try:
        WordRules(rules or Rules(), len(says.vocabulary), says.vocabulary, torch.device("cpu"))
    except ConfigError as error:
        raise Refusal.of(error, status=409) from error
    return rules
