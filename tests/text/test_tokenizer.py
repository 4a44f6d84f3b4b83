"""The tokenizer against recordings of the reference tool, the tool itself where Java runs, and its own promises."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.text import tokenizer
from sightline.text.ptb_rules import scan
from sightline.text.tokenizer import PUNCTUATION, ptb_tokenize, ptb_tokenize_all, ptb_tokens

PIECES = """a I The dog's don't cannot o'clock 'tis '90s Mr. U.S. etc. No. K. 5 1/2 5:30 $5 1,000.5 555 1234 and/or
    AT&T http://x.com/a me@x.com #tag @user a.jpg <b> &amp; &nbsp; ... .. . - -- ( ) :) ^_^ " ' `` '' , ; !
    ?! ½ é “ ’ – … 中文 \xad 😀 x- -x""".split()
LINE_BREAKS = "\n\r\x0b\x0c\u2028\u2029"

any_text = st.text(st.characters())  # lone surrogates included
glued_text = st.lists(st.sampled_from([*PIECES, " ", " ", "\xa0", "\u3000", "1 1/2", "<b c='d'>"]), max_size=12).map(
    "".join
)
ascii_text = st.text(st.characters(min_codepoint=32, max_codepoint=126))


@cache
def recording() -> dict[str, Any]:
    with gzip.open(Path(__file__).parents[1] / "fixtures" / "ptb_reference.json.gz", "rt", encoding="utf-8") as file:
        return dict(json.load(file))


def recorded(part: str) -> list[tuple[str, str]]:
    return [(text, line) for text, line in recording()[part]]


def without_punctuation(line: str) -> str:
    """What pycocoevalcap does with a line the tool prints."""
    return " ".join(token for token in line.rstrip().split(" ") if token not in PUNCTUATION)


def differences(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {text: (expected[text], found[text]) for text in expected if expected[text] != found[text]}


def test_metrics_read_the_words_the_reference_tool_gives_them() -> None:
    expected = {text: without_punctuation(line) for text, line in recorded("strings")}
    assert len(expected) > 7000
    assert differences(expected, {text: ptb_tokenize(text) for text in expected}) == {}


def test_tokens_with_punctuation_equal_the_reference_tools() -> None:
    expected = dict(recorded("strings"))
    assert differences(expected, {text: " ".join(scan(text)).lower() for text in expected}) == {}


def test_tokens_with_capitals_equal_the_reference_tools() -> None:
    expected = dict(recorded("cased"))
    found = {text: " ".join(scan(text)) for text in expected}
    assert differences(expected, found) == {}


def test_neighbours_in_one_file_touch_as_in_the_reference_tool() -> None:
    texts = [text for text, _ in recorded("file")]
    lines = [without_punctuation(line) for _, line in recorded("file")]
    assert ptb_tokenize_all(texts, one_file=True) == lines
    assert ptb_tokenize_all(texts) != lines
    assert ptb_tokenize_all([], one_file=True) == []


@pytest.mark.data
def test_tricky_strings_of_the_reference_file_are_equal(data_dir: Path) -> None:
    reference = json.loads((data_dir / "metrics" / "reference.json").read_text(encoding="utf-8"))
    expected = dict(reference["tokenizer_tricky"])
    assert differences(expected, {text: ptb_tokenize(text) for text in expected}) == {}


@pytest.mark.data
def test_captions_of_the_reference_file_are_equal(data_dir: Path) -> None:
    reference = json.loads((data_dir / "metrics" / "reference.json").read_text(encoding="utf-8"))
    expected = dict(pairs(reference["sets"]))
    assert len(expected) > 1000
    assert differences(expected, {text: ptb_tokenize(text) for text in expected}) == {}


def pairs(node: Any) -> list[tuple[str, str]]:
    """Raw captions with their tokens: `raw_x` beside `tok_x`, at any depth."""
    if not isinstance(node, dict):
        return [pair for item in node for pair in pairs(item)] if isinstance(node, list) else []
    found = []
    for key, value in node.items():
        if key.startswith("raw_"):
            found += zip(leaves(value), leaves(node["tok_" + key.removeprefix("raw_")]), strict=True)
        else:
            found += pairs(value)
    return found


def leaves(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    return [leaf for item in (node.values() if isinstance(node, dict) else node) for leaf in leaves(item)]


def run_reference_tool(texts: list[str], folder: Path, *options: str) -> list[str]:
    """The tool's own lines for texts kept apart by an empty line, a line `zzz` and an empty line."""
    if not shutil.which("java"):
        pytest.skip("java is not installed")
    spec = find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("pycocoevalcap is not installed")
    jar = Path(spec.submodule_search_locations[0]) / "tokenizer" / "stanford-corenlp-3.4.1.jar"
    path = folder / "captions.txt"
    path.write_text("\n\nzzz\n\n".join(texts) + "\n", encoding="utf-8")
    command = ["java", "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", *options, str(path)]
    printed = subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8").split("\n")
    return printed[: 4 * len(texts) : 4]


def test_recording_is_what_the_reference_tool_prints_today(tmp_path: Path) -> None:
    texts, lines = zip(*recorded("strings"), strict=True)
    printed = run_reference_tool(list(texts), tmp_path, "-lowerCase")
    assert differences(dict(zip(texts, lines, strict=True)), dict(zip(texts, printed, strict=True))) == {}


@given(st.one_of(any_text, glued_text))
def test_any_text_becomes_words_between_single_spaces(text: str) -> None:
    words = ptb_tokenize(text).split(" ")
    assert words == [""] or "" not in words
    assert not PUNCTUATION.intersection(words)
    assert not set(LINE_BREAKS).intersection("".join(words))


@given(st.lists(st.one_of(any_text, glued_text, ascii_text)))
def test_a_batch_equals_its_captions_one_by_one(texts: list[str]) -> None:
    batch = ptb_tokenize_all(iter(texts))
    assert batch == [ptb_tokenize(text) for text in texts]
    assert batch == ptb_tokenize_all(texts)


@given(st.one_of(glued_text, ascii_text))
def test_remembered_pieces_equal_a_scan_of_the_whole_caption(text: str) -> None:
    assert ptb_tokenize(text).rstrip() == " ".join(ptb_tokens(text)).rstrip()


@given(st.lists(glued_text, min_size=1))
def test_a_full_cache_changes_nothing(texts: list[str]) -> None:
    expected = ptb_tokenize_all(texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "_CACHE_SIZE", 2)
        patch.setattr(tokenizer, "_CHUNKS", tokenizer._Chunks())
        assert ptb_tokenize_all(texts) == expected
        assert len(tokenizer._CHUNKS) <= 2


@given(st.one_of(any_text, glued_text))
def test_tokens_are_lower_cased_before_punctuation_is_left_out(text: str) -> None:
    lowered = [token.lower() for token in scan(text)]
    assert ptb_tokens(text) == [token for token in lowered if token not in PUNCTUATION]


@given(st.lists(st.one_of(glued_text, ascii_text), min_size=2), st.sampled_from(LINE_BREAKS))
def test_line_breaks_of_every_kind_are_spaces(parts: list[str], line_break: str) -> None:
    assert ptb_tokenize(line_break.join(parts)) == ptb_tokenize(" ".join(parts))


@given(st.lists(glued_text))
def test_one_file_changes_only_full_stops_at_the_end_of_captions(texts: list[str]) -> None:
    alone = ptb_tokenize_all([*texts, "x"])
    together = ptb_tokenize_all([*texts, "x"], one_file=True)
    for one, other in zip(alone, together, strict=True):
        assert one.rstrip(".") == other.rstrip(".")


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "\ud800", "a\udfffb", "\x00", "👩‍🚀", "ﷺ", "\u200b\ufeff", "." * 99, "(" * 99]
)
def test_odd_input_does_not_stop_it(text: str) -> None:
    assert isinstance(ptb_tokenize(text), str)


def test_lone_surrogates_and_emoji_separate_words() -> None:
    assert ptb_tokenize("a\udfffb c😀d") == "a b c d"
