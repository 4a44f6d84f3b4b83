"""METEOR 1.5 against statistics and scores recorded from the Java tool, and its parts against naive ones."""

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import DataError, MissingExtraError, TruncatedError
from sightline.metrics import meteor_data
from sightline.metrics.meteor import Meteor, corpus_score, score
from sightline.metrics.meteor_data import BACKWARD, FORWARD, MeteorIndex, Source, TextHashes, compile_index, line_hashes
from sightline.metrics.meteor_match import BEAM, align, match
from sightline.metrics.meteor_words import java_hash, normalise
from sightline.metrics.scorecard import default_metrics
from sightline.text.tokenizer import ptb_tokenize_all

RECORDED = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "fixtures" / "meteor_reference.json.gz").read_bytes())
)
WORDS = "a the dog dogs man men sofa couch running runs on of in red big large 's - ! café 2 |||".split()
sentence = st.lists(st.sampled_from(WORDS) | st.text(min_size=1, max_size=4), max_size=12).map(" ".join)

needs_data = pytest.mark.skipif(
    "meteor" not in default_metrics(), reason="the data of the extra `meteor` is not installed"
)


@pytest.fixture(scope="module")
def meteor():
    """One metric for all tests; the first use compiles the index into the user's cache where it is missing."""
    return Meteor()


def updated(metric, pairs):
    metric.reset()
    metric.update({str(i): h for i, (h, _) in enumerate(pairs)}, {str(i): r for i, (_, r) in enumerate(pairs)})
    return metric


def scored(metric, pairs):
    return [row["METEOR"] for row in updated(metric, pairs).compute().per_image.values()]


@needs_data
@pytest.mark.parametrize("name", RECORDED["sets"])
def test_statistics_and_scores_of_every_recorded_image_are_equal(meteor, name):
    items = RECORDED["sets"][name]["items"]
    found = updated(meteor, [(said, heard) for said, heard, _, _ in items]).statistics()
    scores = meteor.compute()
    for (said, heard, numbers, own), id in zip(items, found, strict=True):
        assert list(found[id]) == numbers, (said, heard)
        assert scores.per_image[id]["METEOR"] == pytest.approx(own, rel=0, abs=1e-12), (said, heard)
    assert scores.corpus["METEOR"] == pytest.approx(RECORDED["sets"][name]["corpus"], rel=0, abs=1e-12)


@pytest.mark.data
@needs_data
def test_the_example_results_of_coco_caption_have_their_recorded_scores(meteor, data_dir):
    reference = json.loads((data_dir / "metrics" / "reference.json").read_text())["sets"]
    for recorded in reference.values():
        rows = recorded["per_image"]
        found = updated(meteor, [(row["tok_hyp"], row["tok_refs"]) for row in rows]).statistics()
        for row, numbers in zip(rows, found.values(), strict=True):
            assert list(numbers) == [float(number) for number in row["METEOR_stats"].split()], row["tok_hyp"]
    captions = {}
    with gzip.open(data_dir / "coco" / "captions_val2014.json.gz", "rt", encoding="utf-8") as file:
        for row in json.load(file)["annotations"]:
            captions.setdefault(row["image_id"], []).append(row["caption"])
    results = json.loads((data_dir / "metrics" / "captions_val2014_fakecap_results.json").read_text())
    pairs = [ptb_tokenize_all([row["caption"], *captions[row["image_id"]]]) for row in results]
    corpus = updated(meteor, [(said, heard) for said, *heard in pairs]).compute().corpus["METEOR"]
    assert corpus == pytest.approx(reference["fakecap1000_official"]["corpus"]["METEOR"], rel=0, abs=1e-12)


def naive_score(numbers):
    """METEOR's formula, written out."""
    said, heard, said_functions, heard_functions, *modules, chunks, said_matched, heard_matched = numbers
    weights = (1, 0.6, 0.8, 0.6)
    content = [sum(w * modules[4 * m + side] for m, w in enumerate(weights)) for side in (0, 1)]
    functions = [sum(w * modules[4 * m + 2 + side] for m, w in enumerate(weights)) for side in (0, 1)]
    if not said_matched:
        return 0.0
    precision = (0.75 * content[0] + 0.25 * functions[0]) / (0.75 * (said - said_functions) + 0.25 * said_functions)
    recall = (0.75 * content[1] + 0.25 * functions[1]) / (0.75 * (heard - heard_functions) + 0.25 * heard_functions)
    f = precision * recall / (0.85 * precision + 0.15 * recall)
    fragmentation = chunks / ((said_matched + heard_matched) / 2)
    if chunks == 1 and said_matched == said and heard_matched == heard:
        fragmentation = 0
    return f * (1 - 0.6 * fragmentation**0.2)


@pytest.mark.parametrize("name", RECORDED["sets"])
def test_the_score_is_the_formula_of_the_recorded_statistics(name):
    for _, _, numbers, own in RECORDED["sets"][name]["items"]:
        assert score(numbers) == pytest.approx(naive_score(numbers), abs=1e-12)
        assert score(numbers) == pytest.approx(own, abs=1e-12)


def test_no_image_at_all_scores_zero():
    assert corpus_score([]) == 0.0


@needs_data
def test_resampling_every_image_once_gives_the_corpus_score(meteor):
    pairs = [(said, heard) for said, heard, _, _ in RECORDED["sets"]["odd"]["items"]]
    corpus = updated(meteor, pairs).compute().corpus["METEOR"]
    twice = np.array([[1.0] * len(pairs), [2.0] * len(pairs)])
    assert meteor.resample(twice)["METEOR"] == pytest.approx([corpus, corpus], abs=1e-12)


@needs_data
@settings(max_examples=30)
@given(pairs=st.lists(st.tuples(sentence, st.lists(sentence, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_batches_and_order_do_not_matter(meteor, pairs):
    together = scored(meteor, pairs)
    assert together == [scored(meteor, [pair])[0] for pair in pairs]
    assert list(reversed(scored(meteor, pairs[::-1]))) == together


@needs_data
def test_images_added_later_are_scored_beside_the_first(meteor):
    pairs = [(said, heard) for said, heard, _, _ in RECORDED["sets"]["odd"]["items"][:6]]
    together = updated(meteor, pairs).compute()
    updated(meteor, pairs[:3]).compute()
    meteor.update({str(i): pairs[i][0] for i in (3, 4, 5)}, {str(i): pairs[i][1] for i in (3, 4, 5)})
    assert meteor.compute() == together


@needs_data
@settings(max_examples=30)
@given(hypothesis=sentence, references=st.lists(sentence, min_size=1, max_size=3))
def test_the_hypothesis_among_its_references_gives_its_own_best(meteor, hypothesis, references):
    itself = hypothesis.replace("|||", "")
    (alone,) = scored(meteor, [(hypothesis, [itself])])
    (among,) = scored(meteor, [(hypothesis, [*references, itself])])
    assert among == pytest.approx(alone, abs=1e-9)
    assert alone == (1.0 if meteor.explain(itself, [itself]) else 0.0)


@needs_data
@settings(max_examples=40)
@given(hypothesis=sentence, references=st.lists(sentence, min_size=2, max_size=4))
def test_references_that_are_not_aligned_would_not_have_won(meteor, hypothesis, references):
    each = [updated(meteor, [(hypothesis, [one])]).statistics()["0"] for one in references]
    best = updated(meteor, [(hypothesis, references)]).statistics()["0"]
    assert best == max(each, key=score), "of equals, the first"


@needs_data
def test_odd_and_endless_captions_are_scored(meteor):
    long = " ".join(f"word{i % 50}" for i in range(1000))
    same = " ".join(["a"] * 300)
    found = scored(
        meteor, [("", ["a dog"]), ("a dog", [""]), ("", [""]), ("🐶 \uffff", ["🐶"]), (long, [long, "a dog"])]
    )
    assert found[:3] == [0.0, 0.0, 0.0]
    assert found[4] == 1.0
    assert scored(meteor, [("a b", ["a \ud800"]), ("\n\r\t", ["\n"])]) == [pytest.approx(0.1), 0.0]
    assert scored(meteor, [(same, [same + " dog"])])[0] > 0.5


@needs_data
def test_an_explanation_names_each_match_by_its_module(meteor):
    found = meteor.explain("a man rides on a couch that is close by", ["a cat", "a man riding on a sofa that is near"])
    matched = {(ours, theirs): module for ours, theirs, module in found}
    assert matched[("man", "man")] == "exact"
    assert matched[("rides", "riding")] == "stem"
    assert matched[("couch", "sofa")] == "synonym"
    assert matched[("close by", "near")] == "paraphrase"


def test_words_are_those_the_tool_makes():
    prefixes = {"Mr": False, "No": True, "pp": True, "Nos": False, "A": False, "B": False, "i.e": False, "e.g": False}
    assert {text: normalise(text, prefixes) for text, _ in RECORDED["words"]} == dict(RECORDED["words"])


@given(st.text(max_size=8))
def test_the_hash_is_java_s(word):
    units = np.frombuffer(word.encode("utf-16-le"), "<u2").tolist()
    assert java_hash(word) == sum(unit * 31**k for k, unit in enumerate(reversed(units))) % 2**32


def naive_align(places, fixed):
    """The beam search as its quirks describe it, without any shortcut."""
    paths = [((0, 0, 0), set(), -1, -1, [])]  # matches, chunks, distance; words taken; ends of the last match; matches
    for here, matches in enumerate(places):
        extended = []
        for path in paths:
            (counted, chunks, distance), used, reached, end, chosen = path
            if reached > here:
                extended.append(path)
                continue
            for one in matches:
                _, start, stop, _, width, module = one
                words = set(range(start, stop))
                if used & words:
                    continue
                gain = 2 if module == 0 else (stop - start) // 2 + width // 2
                broken = reached == here and start != end
                key = (counted - gain, chunks + broken, distance)
                extended.append((key, used | words, here + width, stop, [*chosen, (here, one)]))
                distance += abs(start - here)
            if not fixed >> here & 1:
                extended.append(((counted, chunks + (reached == here), distance), used, -1, -1, chosen))
        paths = sorted(extended, key=lambda path: path[0])[:BEAM]
    last = [
        ((counted, chunks + (path[2] == len(places)), d), path) for path in paths for counted, chunks, d in [path[0]]
    ]
    return min(last, key=lambda pair: pair[0])[1][4]


@st.composite
def competing(draw, kinds, longest):
    """Places of a reference whose words are of a few kinds, with matches as `Matcher` orders them."""
    said = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=longest))
    heard = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=longest))
    related = {kind: draw(st.sampled_from([(), (1,), (2,), (1, 2)])) for kind in kinds}
    by_kind = {}
    for kind in kinds:
        exact = [match(i, 1, 1, 0) for i, other in enumerate(said) if other == kind]
        other = [
            match(i, 1, 1, m)
            for m in related[kind]
            for i, k in enumerate(said)
            if (kinds.index(k) - kinds.index(kind)) == 1
        ]
        by_kind[kind] = exact + other
    places = [by_kind[kind] for kind in heard]
    for _ in range(draw(st.integers(0, 3))):
        start, at = draw(st.integers(0, len(said) - 1)), draw(st.integers(0, len(heard) - 1))
        length, width = draw(st.integers(1, min(3, len(said) - start))), draw(st.integers(1, min(3, len(heard) - at)))
        places[at] = [*places[at], match(start, length, width, 3)]
    return places


@settings(max_examples=300)
@given(competing("abc", 7) | competing("abcdef", 9))
def test_the_search_equals_the_naive_one(places):
    assert align(places, 0) == naive_align(places, 0)


@settings(max_examples=8)
@given(st.integers(85, 90), st.integers(1, 8), st.sampled_from([(1,), (1, 2), ()]), st.booleans())
def test_a_word_repeated_very_often_equals_the_naive_search(often, repeats, modules, phrase):
    matches = [match(i, 1, 1, 0) for i in range(0, often, 2)]
    matches += [match(i, 1, 1, module) for module in modules for i in range(1, often)]
    matches += [match(3, 2, 2, 3)] * phrase
    matches += [match(i, 1, 1, 3) for i in range(often)]
    places = [matches] * repeats + [[], matches[:40]] * 3
    assert align(places, 0) == naive_align(places, 0)


def test_matches_without_rivals_are_all_made():
    places = [[match(1, 1, 1, 1)], [], [match(0, 1, 1, 0)]]
    assert align(places, 0b101) == [(0, places[0][0]), (2, places[2][0])]


@given(st.lists(st.sampled_from(["a", "ab", "犬", "b a", ""]), max_size=12))
def test_equal_slices_have_equal_hashes_and_others_have_others(words):
    text = "\n".join([*words, ""]).encode()
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    hashes = TextHashes(text)(np.append(0, ends + 1)[: len(ends)], ends).tolist()
    assert hashes == line_hashes(text).tolist()
    for word, value in zip(words, hashes, strict=False):
        assert [other for other, v in zip(words, hashes, strict=False) if v == value] == [word] * words.count(word)


PAIRS = [("a dog", "dogs"), ("dogs", "a dog"), ("big", "large"), ("big", "very large"), ("over there", "yonder")]


@pytest.fixture
def source(tmp_path):
    """A tiny table and jar in the tool's formats."""
    table = "".join(f"0.5\n{left}\n{right}\n" for left, right in sorted(PAIRS))
    found = Source(tmp_path / "tool.jar", tmp_path / "table.gz")
    found.paraphrases.write_bytes(gzip.compress(table.encode()))
    with zipfile.ZipFile(found.jar, "w") as jar:
        jar.writestr("function/english.words", "the\na\n")
        jar.writestr("nonbreaking/english.prefixes", "# titles\n\nMr\nNo #NUMERIC_ONLY# \n")
        jar.writestr("synonym/english.synsets", "dog\n1 2\nhound\n2\nwolf\n3\nbox\n4\ncrate\n4\nleaf\n5\nleave\n6\n")
        jar.writestr("synonym/english.exceptions", "wolf\nwolves\nleaf\nleaves\nsheaf\nsheaves\n")
    return found


def ids(index, *phrases):
    return index.phrase_ids(line_hashes("".join(phrase + "\n" for phrase in phrases).encode()))


def test_a_compiled_index_holds_every_pair_in_its_directions(source, tmp_path):
    compile_index(source, tmp_path / "index")
    index = MeteorIndex.open(tmp_path / "index")
    assert index.longest_phrase == 2
    assert index.function_words == {"the", "a"}
    assert index.prefixes == {"Mr": False, "No": True}
    phrases = sorted({phrase for pair in PAIRS for phrase in pair})
    numbers = ids(index, *phrases)
    assert ids(index, "dog", "", "a dog s").tolist() == [-1, -1, -1]
    name = dict(zip(numbers.tolist(), phrases, strict=True))
    which, others, directions = index.pairs(numbers)
    found = {
        (phrases[w], name[o]): d for w, o, d in zip(which.tolist(), others.tolist(), directions.tolist(), strict=True)
    }
    expected = {}
    for left, right in PAIRS:
        expected[left, right] = expected.get((left, right), 0) | FORWARD
        expected[right, left] = expected.get((right, left), 0) | BACKWARD
    assert found == expected


def test_synonym_sets_follow_wordnet_s_rules_for_inflected_words(source, tmp_path):
    compile_index(source, tmp_path / "index")
    words = ["dog", "hounds", "boxes", "wolves", "leaves", "sheaves", "ss", "cat"]
    index = MeteorIndex.open(tmp_path / "index")
    # `leaves` is irregular, so that `leave` does not count; `sheaf` has no synonyms.
    assert [index.synsets_of(word) for word in words] == [{"1", "2"}, {"2"}, {"4"}, {"3"}, {"5"}, set(), set(), set()]


def test_a_table_that_ends_within_a_record_is_refused_and_nothing_is_left(source, tmp_path):
    source.paraphrases.write_bytes(gzip.compress(b"0.5\na dog\ndogs\n0.5\nbig\n"))
    with pytest.raises(TruncatedError, match="within a record"):
        compile_index(source, tmp_path / "cache" / "index")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_damaged_jar_is_named(source):
    source.jar.write_bytes(b"PK")
    with pytest.raises(DataError, match="jar is damaged"):
        _ = source.fingerprint
    with zipfile.ZipFile(source.jar, "w") as jar:
        jar.writestr("other", "")
    with pytest.raises(DataError, match="function/english"):
        source.lines("function/english.words")


def test_a_damaged_index_is_named(source, tmp_path):
    compile_index(source, tmp_path / "index")
    (tmp_path / "index" / "phrases.npy").write_bytes(b"")
    with pytest.raises(DataError, match="damaged"):
        ids(MeteorIndex.open(tmp_path / "index"), "big")


def test_the_index_is_compiled_once_and_shown_on_a_terminal(source, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Source, "from_wheel", lambda: Source(source.jar, source.paraphrases))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    first = meteor_data.open_data()
    assert "METEOR" in capsys.readouterr().err
    assert meteor_data.open_data().folder == first.folder
    assert capsys.readouterr().err == ""
    source.paraphrases.write_bytes(gzip.compress(b"0.5\nbig\nlarge\n"))
    assert meteor_data.open_data().folder != first.folder, "other data has another index"


def test_of_two_processes_that_compile_the_first_one_s_index_stays(source, tmp_path):
    compile_index(source, tmp_path / "cache" / "index")
    (tmp_path / "cache" / "index" / "first").touch()
    compile_index(source, tmp_path / "cache" / "index")
    assert (tmp_path / "cache" / "index" / "first").exists()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["index"]


def test_a_cache_that_cannot_be_written_is_named(source, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(Source, "from_wheel", lambda: source)
    with pytest.raises(DataError, match="SIGHTLINE_CACHE"):
        meteor_data.open_data()


def test_without_its_data_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"sightline\[meteor\]"):
        meteor_data.open_data()
