"""ROUGE-L (Lin 2004) as coco-caption computes it: F of the longest common subsequence with beta 1.2."""

from collections.abc import Sequence

from sightline.metrics.language_metric import LanguageMetric, Scores, mean_scores

BETA = 1.2  # recall weighs more than precision


class RougeL(LanguageMetric):
    """ROUGE-L: the best precision and the best recall over the references, taken independently. Corpus: the mean."""

    keys = ("ROUGE_L",)
    title = "ROUGE-L"

    def compute(self) -> Scores:
        scores = {}
        for id, hypothesis in self._hypotheses.items():
            words = hypothesis.split(" ")  # at single spaces: an empty sentence is one empty word
            others = [reference.split(" ") for reference in self._references[id]]
            common = lcs_lengths(words, others)
            precision = max(common) / len(words)
            recall = max([length / len(other) for length, other in zip(common, others, strict=True)])
            both = precision and recall
            scores[id] = ((1 + BETA**2) * precision * recall) / (recall + BETA**2 * precision) if both else 0.0
        return mean_scores("ROUGE_L", scores)

    def explain(self, hypothesis: str, references: Sequence[str]) -> list[int]:
        """The places of the hypothesis' words in its longest common subsequence with any reference."""
        places = [_common(hypothesis.split(" "), reference.split(" ")) for reference in references]
        return max(places, key=len)


def lcs_lengths(hypothesis: Sequence[str], references: Sequence[Sequence[str]]) -> list[int]:
    """Length of the longest common subsequence of the hypothesis with each reference.

    Bit-parallel dynamic programming (Hyyrö 2004): bit j of `row` is 0 where the column of lengths rises at word j.
    All references stand side by side in one integer; the 0 bit between them stops the carry of the addition.
    """
    places = dict.fromkeys(hypothesis, 0)
    bit = 1
    gaps = 0
    for reference in references:
        for word in reference:
            if word in places:
                places[word] |= bit
            bit <<= 1
        gaps |= bit
        bit <<= 1
    words = row = (bit - 1) ^ gaps
    for word in hypothesis:
        if here := places[word]:
            rising = row & here
            row = ((row + rising) | (row - rising)) & words
    lengths = []
    risen = words ^ row
    for reference in references:
        size = len(reference)
        lengths.append((risen & ((1 << size) - 1)).bit_count())
        risen >>= size + 1
    return lengths


def _common(hypothesis: Sequence[str], reference: Sequence[str]) -> list[int]:
    """The hypothesis' places of one longest common subsequence, by the textbook table."""
    best = [[0] * (len(reference) + 1) for _ in range(len(hypothesis) + 1)]
    for i, word in enumerate(hypothesis):
        for j, other in enumerate(reference):
            best[i + 1][j + 1] = best[i][j] + 1 if word == other else max(best[i][j + 1], best[i + 1][j])
    places: list[int] = []
    i, j = len(hypothesis), len(reference)
    while i and j:
        if hypothesis[i - 1] == reference[j - 1]:
            i, j = i - 1, j - 1
            places.append(i)
        elif best[i - 1][j] >= best[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return places[::-1]
