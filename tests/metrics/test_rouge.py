import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from language_samples import CORPUS, SENTENCE, SETS, recorded, score, split
from sightline.metrics.rouge import RougeL, lcs_lengths

WORDS = st.lists(st.sampled_from("abcd"), max_size=12)


def naive_lcs(one, other):
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def rouge(said, references):
    return score(RougeL(), {"1": said}, {"1": references}).corpus["ROUGE_L"]


@pytest.mark.parametrize("name", SETS)
def test_rouge_equals_the_recorded_tool(name):
    hypotheses, references, expected = recorded(name)
    scores = score(RougeL(), hypotheses, references)
    assert scores.corpus["ROUGE_L"] == pytest.approx(expected[None]["ROUGE_L"], rel=0, abs=1e-9)
    for id in hypotheses:
        assert scores.per_image[id]["ROUGE_L"] == pytest.approx(expected[id]["ROUGE_L"], rel=0, abs=1e-9), id


@given(WORDS, st.lists(WORDS, max_size=5))
def test_bit_parallel_lengths_equal_the_table(said, references):
    assert lcs_lengths(said, references) == [naive_lcs(said, reference) for reference in references]


def test_long_sentences_cross_machine_words():
    said = [f"w{i * i % 97}" for i in range(1000)]
    references = [[f"w{i % 101}" for i in range(700)], ["nothing"], said]
    assert lcs_lengths(said, references) == [naive_lcs(said, references[0]), 0, 1000]


@given(SENTENCE, st.lists(SENTENCE, max_size=4))
def test_a_hypothesis_that_is_a_reference_scores_one(said, others):
    assert rouge(said, [*others, said]) == pytest.approx(1.0, abs=1e-12)


@given(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=4))
def test_rouge_is_the_f_of_the_best_precision_and_the_best_recall(said, references):
    ours = said.split(" ")
    common = [naive_lcs(ours, reference.split(" ")) for reference in references]
    precision = max(c / len(ours) for c in common)
    recall = max(c / len(reference.split(" ")) for c, reference in zip(common, references, strict=True))
    expected = 0.0 if not precision else 2.44 * precision * recall / (recall + 1.44 * precision)
    assert rouge(said, references) == pytest.approx(expected, abs=1e-12)


@given(CORPUS, st.randoms())
def test_neither_the_order_of_images_nor_the_batches_matter(corpus, random):
    hypotheses, references = split(corpus)
    one_by_one = RougeL()
    ids = list(hypotheses)
    random.shuffle(ids)
    for id in ids:
        one_by_one.update({id: hypotheses[id]}, {id: references[id]})
    scores, expected = one_by_one.compute(), score(RougeL(), hypotheses, references)
    assert scores.per_image == expected.per_image
    assert scores.corpus["ROUGE_L"] == pytest.approx(expected.corpus["ROUGE_L"], abs=1e-12)


@given(st.text(), st.lists(st.text(), min_size=1, max_size=3))
def test_any_text_has_a_score(said, references):
    assert 0 <= rouge(said, references) <= 1


def test_no_image_at_all_scores_zero():
    assert RougeL().compute().corpus == {"ROUGE_L": 0.0}


@given(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3))
def test_explain_gives_the_places_of_a_longest_common_subsequence(said, references):
    places = RougeL().explain(said, references)
    ours, others = said.split(" "), [reference.split(" ") for reference in references]
    common = [ours[place] for place in places]
    assert places == sorted(set(places))
    assert len(common) == max(naive_lcs(ours, other) for other in others)
    assert any(naive_lcs(common, other) == len(common) for other in others)


@pytest.mark.data
def test_rouge_of_single_images_equals_the_reference_tools_file(data_dir):
    for whole in json.loads((data_dir / "metrics" / "reference.json").read_text())["sets"].values():
        for image in whole["per_image"]:
            assert rouge(image["tok_hyp"], image["tok_refs"]) == pytest.approx(image["ROUGE_L"], rel=0, abs=1e-9)
