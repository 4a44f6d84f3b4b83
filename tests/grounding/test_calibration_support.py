"""From evidence for a noun to the probability that the photo shows it."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import ConfigError
from sightline.grounding.calibration import SupportModel
from sightline.grounding.evidence import Evidence
from sightline.grounding.photo_evidence import concept_odds
from sightline.scene import Concept

NUMBERS = st.one_of(st.just(math.nan), st.floats(-50, 50))


def test_weights_that_a_file_from_before_has_are_those_of_the_first_parts():
    before = SupportModel(weights=(1.0, 0.5, 0.0, 2.0, 0.1, 3.0), usual=(0.0,) * 6)
    now = SupportModel(weights=(*before.weights, 0.0, 0.0), usual=(0.0,) * 8)
    evidence = [Evidence(-1.0, -2.0, 3.0, 0.5, 0.2, 0.1, -7.0, 7.0)]
    assert before.support(evidence) == pytest.approx(now.support(evidence))
    with pytest.raises(ConfigError, match="9 weights"):
        SupportModel(weights=(0.0,) * 9, usual=(0.0,) * 9)


@given(st.tuples(*[NUMBERS] * 6), st.integers(0, 5), st.floats(0, 10))
def test_more_evidence_never_means_less_support(numbers, place, more):
    auditing = SupportModel(weights=(1.0, 0.5, 0.0, 2.0, 0.1, 3.0))
    raised = [value + more * (at == place) for at, value in enumerate(numbers)]
    low, high = auditing.support([Evidence(*numbers), Evidence(*raised)])
    assert 0 <= low <= high <= 1


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ConfigError):
        SupportModel(bias=math.nan)
    with pytest.raises(ConfigError):
        SupportModel(least=2)


def test_a_zebra_called_a_giraffe_is_caught_although_it_has_much_of_one():
    # So much speaks for a giraffe, too: a long neck in the grass.
    zebra = {"name_odds": 1.0, "region_cosine": 0.5, "photo_cosine": 0.4}
    auditing = SupportModel(weights=(0, 0, 0, 0.3, 5.0, 5.0, 0.3, 0.5), usual=(0.0,) * 8, bias=-3.0, least=0.75)
    alone = Evidence(**zebra, name_margin=1.0 - 6.0, concept_odds=concept_odds("giraffe", [Concept("zebra", 0.9)]))
    beside = Evidence(**zebra, name_margin=1.0, concept_odds=concept_odds("giraffe", [Concept("giraffe", 0.7)]))
    before = replace(auditing, weights=auditing.weights[:6], usual=auditing.usual[:6])
    assert before.support([alone])[0] == before.support([beside])[0] >= auditing.least
    assert auditing.support([alone])[0] < auditing.least <= auditing.support([beside])[0]
