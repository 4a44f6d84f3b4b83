"""Released checkpoints: the tests write them in the projects' layouts, with models written down here, and compare."""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from captioner_contract import REGION_WIDTH, random_scenes
from sightline.batch import TextBatch
from sightline.checkpoint import load
from sightline.cli import main
from sightline.converters.released import convert_released
from sightline.errors import CheckpointError, ConfigError, CountError, DataError, MissingRecordError
from sightline.text.vocabulary import UNK

WORDS = ["a", "cat", "dog", "on", "mat", "UNK"]


class PeerUpDown(nn.Module):
    """Up-Down as self-critical names and computes it, one caption at a time."""

    def __init__(self, use_bn: int = 0) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Embedding(len(WORDS) + 1, 6), nn.ReLU(), nn.Dropout(0.5))
        self.fc_embed = nn.Sequential(nn.Linear(REGION_WIDTH, 8), nn.ReLU(), nn.Dropout(0.5))
        first = [nn.BatchNorm1d(REGION_WIDTH)] if use_bn else []
        last = [nn.BatchNorm1d(8)] if use_bn == 2 else []
        self.att_embed = nn.Sequential(*first, nn.Linear(REGION_WIDTH, 8), nn.ReLU(), nn.Dropout(0.5), *last)
        self.ctx2att = nn.Linear(8, 5)
        self.logit = nn.Linear(8, len(WORDS) + 1)
        self.core = nn.Module()
        self.core.att_lstm = nn.LSTMCell(6 + 16, 8)
        self.core.lang_lstm = nn.LSTMCell(16, 8)
        self.core.attention = nn.Module()
        self.core.attention.h2att = nn.Linear(8, 5)
        self.core.attention.alpha_net = nn.Linear(5, 1)

    def caption_log_prob(self, regions: torch.Tensor, ids: list[int]) -> torch.Tensor:
        fc = self.fc_embed(regions.mean(0, keepdim=True))
        att = self.att_embed(regions)
        keys = self.ctx2att(att)
        h1 = c1 = h2 = c2 = torch.zeros(1, 8)
        total, core = torch.tensor(0.0), self.core
        for word, following in zip([0, *ids], [*ids, 0], strict=True):
            x = self.embed(torch.tensor([word]))
            h1, c1 = core.att_lstm(torch.cat([h2, fc, x], 1), (h1, c1))
            scores = core.attention.alpha_net(torch.tanh(keys + core.attention.h2att(h1)))[:, 0]
            attended = (F.softmax(scores, 0)[:, None] * att).sum(0, keepdim=True)
            h2, c2 = core.lang_lstm(torch.cat([attended, h1], 1), (h2, c2))
            total = total + F.log_softmax(self.logit(h2), 1)[0, following]
        return total


def write_updown(folder, use_bn=0, parallel=False, protocol=4, words=WORDS):
    torch.manual_seed(0)
    peer = PeerUpDown(use_bn)
    for module in peer.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    weights = {("module." if parallel else "") + name: tensor for name, tensor in peer.state_dict().items()}
    torch.save(weights, folder / "model-best.pth")
    opt = argparse.Namespace(caption_model="topdown", use_bn=use_bn, learning_rate=5e-4, ids=["x"])
    infos = {
        "opt": opt,
        "vocab": {str(i): word for i, word in enumerate(words, start=1)},
        "iter": 3,
        "best_val_score": np.float64(1.1),
        "split_ix": {"train": [1, 2]},
        "iterators": {"train": 0},
    }
    (folder / "infos_td-best.pkl").write_bytes(pickle.dumps(infos, protocol=protocol))
    return peer.eval()


@pytest.mark.parametrize(("use_bn", "parallel", "protocol"), [(0, False, 2), (1, True, 4), (2, False, 0)])
def test_updown_gives_the_peers_probabilities(tmp_path, use_bn, parallel, protocol):
    peer = write_updown(tmp_path, use_bn, parallel, protocol)
    converted = convert_released(tmp_path / "model-best.pth")
    scenes = random_scenes(3)
    captions = [["a", "cat"], ["dog"], ["a", "zebra", "on", "a", "mat"]]
    texts = TextBatch.collate(captions, converted.vocabulary)
    model = converted.captioner()
    found = model.log_prob(model.encode(scenes), texts.ids)
    for i, words in enumerate(captions):
        ids = [WORDS.index(word if word in WORDS else "UNK") + 1 for word in words]
        regions = scenes.regions[i, : int(scenes.region_mask[i].sum())]
        torch.testing.assert_close(found[i], peer.caption_log_prob(regions, ids), atol=1e-5, rtol=1e-5)
    assert texts.ids[2, 2] == UNK
    assert converted.card["options"]["caption_model"] == "topdown"


def test_updown_never_says_pad_or_start(tmp_path):
    write_updown(tmp_path)
    converted = convert_released(tmp_path / "model-best.pth")
    model = converted.captioner()
    texts = TextBatch.collate([["a", "cat"]], converted.vocabulary)
    assert (model(model.encode(random_scenes(1)), texts.ids).log_probs[..., :2].exp() == 0).all()


def test_updown_without_its_infos_says_what_is_missing(tmp_path):
    write_updown(tmp_path)
    (tmp_path / "infos_td-best.pkl").rename(tmp_path / "elsewhere.pkl")
    with pytest.raises(MissingRecordError, match="--infos"):
        convert_released(tmp_path / "model-best.pth")
    assert convert_released(tmp_path / "model-best.pth", infos=tmp_path / "elsewhere.pkl").vocabulary.words[0] == "a"


def test_updown_with_several_infos_asks_which(tmp_path):
    write_updown(tmp_path)
    for name in ("infos_a-best.pkl", "infos_b-best.pkl"):
        (tmp_path / name).write_bytes((tmp_path / "infos_td-best.pkl").read_bytes())
    with pytest.raises(MissingRecordError, match="several"):
        convert_released(tmp_path / "model-best.pth")


def test_updown_with_another_vocabulary_is_refused(tmp_path):
    write_updown(tmp_path, words=WORDS[:-1])
    with pytest.raises(CountError, match="says 6 words"):
        convert_released(tmp_path / "model-best.pth")


def test_an_infos_file_that_runs_code_is_refused(tmp_path):
    write_updown(tmp_path)

    class Hostile:
        def __reduce__(self):
            return subprocess.check_output, (["touch", str(tmp_path / "ran")],)

    (tmp_path / "infos_td-best.pkl").write_bytes(pickle.dumps({"vocab": Hostile()}))
    with pytest.raises(DataError, match="refused"):
        convert_released(tmp_path / "model-best.pth")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("vocab", [None, {"2": "a"}, {"1": 3}])
def test_an_infos_file_without_words_is_refused(tmp_path, vocab):
    write_updown(tmp_path)
    (tmp_path / "infos_td-best.pkl").write_bytes(pickle.dumps({"vocab": vocab}))
    with pytest.raises(DataError, match="infos_td-best"):
        convert_released(tmp_path / "model-best.pth")


def test_a_missing_or_misshapen_weight_is_named(tmp_path):
    write_updown(tmp_path)
    weights = torch.load(tmp_path / "model-best.pth")
    removed = weights.pop("core.attention.alpha_net.bias")
    torch.save(weights, tmp_path / "model-best.pth")
    with pytest.raises(CheckpointError, match=r"attention_score\.bias"):
        convert_released(tmp_path / "model-best.pth")
    torch.save({**weights, "core.attention.alpha_net.bias": removed.repeat(2)}, tmp_path / "model-best.pth")
    with pytest.raises(CheckpointError, match=r"shape \(2,\)"):
        convert_released(tmp_path / "model-best.pth")


def test_an_output_of_several_layers_is_refused(tmp_path):
    write_updown(tmp_path)
    weights = torch.load(tmp_path / "model-best.pth")
    weights["logit.0.weight"] = weights.pop("logit.weight")
    torch.save(weights, tmp_path / "model-best.pth")
    with pytest.raises(CheckpointError, match="logit_layers"):
        convert_released(tmp_path / "model-best.pth")


def test_something_else_is_refused(tmp_path):
    torch.save({"weight": torch.zeros(2)}, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match="these can: Up-Down"):
        convert_released(tmp_path / "x.pth")


VOCABULARY = ["<pad>", "<start>", "<end>", "<unk>", "a", "cat", "dog", "on", "mat"]
SIZE, WORD = 6, 5


def write_vocabulary(folder):
    value = {
        "word2idx": {word: i for i, word in enumerate(VOCABULARY)},
        "idx2word": {str(i): word for i, word in enumerate(VOCABULARY)},
        "idx": len(VOCABULARY),
    }
    (folder / "vocab.json").write_text(json.dumps(value))
    return folder / "vocab.json"


def write_matcher(folder, image: nn.Module, text: nn.Module, legacy=True, **opt):
    value = {
        "epoch": 1,
        "model": [image.state_dict(), text.state_dict()],
        "best_rsum": np.float64(1),
        "opt": argparse.Namespace(**opt),
        "Eiters": 7,
    }
    torch.save(value, folder / "model_best.pth.tar", _use_new_zipfile_serialization=not legacy)
    return folder / "model_best.pth.tar"


class PeerText(nn.Module):
    def __init__(self, bidirectional=False) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), WORD)
        self.rnn = nn.GRU(WORD, SIZE, 1, batch_first=True, bidirectional=bidirectional)

    def states(self, ids: list[int]) -> torch.Tensor:
        states = self.rnn(self.embed(torch.tensor([ids])))[0][0]  # (T, size or 2 size)
        return (states[:, :SIZE] + states[:, SIZE:]) / 2 if self.rnn.bidirectional else states


class PeerRelation(nn.Module):
    """A residual graph convolution with 1-wide convolutions over (C, n)."""

    def __init__(self) -> None:
        super().__init__()
        self.g, self.theta, self.phi = (nn.Conv1d(SIZE, SIZE, 1) for _ in range(3))
        self.W = nn.Sequential(nn.Conv1d(SIZE, SIZE, 1), nn.BatchNorm1d(SIZE))
        self.W[1].weight.data.normal_()
        self.W[1].running_mean.normal_()

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        relation = self.theta(v).permute(0, 2, 1) @ self.phi(v) / v.shape[-1]
        return self.W((relation @ self.g(v).permute(0, 2, 1)).permute(0, 2, 1)) + v


class PeerVSRN(nn.Module):
    def __init__(self, flickr: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(REGION_WIDTH, SIZE)
        self.img_rnn = nn.GRU(SIZE, SIZE, 1, batch_first=True)
        for i in range(1, 5):
            setattr(self, f"Rs_GCN_{i}", PeerRelation())
        if flickr:
            self.bn = nn.BatchNorm1d(SIZE)
            self.bn.running_mean.normal_()
        self.flickr = flickr

    def forward(self, regions: torch.Tensor) -> torch.Tensor:
        def l2norm(x):  # over dimension 1 whatever it is
            return x / x.pow(2).sum(1, keepdim=True).sqrt()

        v = self.fc(regions[None])
        v = v if self.flickr else l2norm(v)
        v = v.permute(0, 2, 1)
        for i in range(1, 5):
            v = getattr(self, f"Rs_GCN_{i}")(v)
        memory = self.img_rnn(l2norm(v.permute(0, 2, 1)))[1][0]
        return l2norm(self.bn(memory) if self.flickr else memory)[0]


CAPTIONS = [["a", "cat"], ["dog", "on", "a", "mat"]]


def ids_of(words):
    return [1, *(VOCABULARY.index(word) for word in words), 2]


def regions_of(scenes, i):
    return scenes.regions[i, : int(scenes.region_mask[i].sum())]


@pytest.mark.parametrize("flickr", [True, False])
def test_vsrn_gives_the_peers_similarities(tmp_path, flickr):
    torch.manual_seed(0)
    image, text, scenes = PeerVSRN(flickr).eval(), PeerText().eval(), random_scenes(3)
    path = write_matcher(tmp_path, image, text, data_name="f30k_precomp" if flickr else "coco_precomp", use_abs=False)
    converted = convert_released(path, vocabulary=write_vocabulary(tmp_path))
    found = converted.matcher()(scenes, TextBatch.collate(CAPTIONS, converted.vocabulary))
    for i in range(3):
        for j, words in enumerate(CAPTIONS):
            expected = image(regions_of(scenes, i)) @ F.normalize(text.states(ids_of(words))[-1], dim=0)
            torch.testing.assert_close(found[i, j], expected, atol=1e-5, rtol=1e-4)


class PeerLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(REGION_WIDTH, SIZE)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("weight_norm", [None, 0, "all"])
def test_scan_gives_the_peers_similarities(tmp_path, bidirectional, weight_norm):
    torch.manual_seed(0)
    image, text, scenes = PeerLinear().eval(), PeerText(bidirectional).eval(), random_scenes(3)
    if weight_norm is not None:
        nn.utils.weight_norm(image.fc, dim=None if weight_norm == "all" else 0)
        image.fc.weight_g.data *= 1.7
        image.fc(torch.zeros(1, REGION_WIDTH))  # computes the weight from its parts
    opt = {"cross_attn": "t2i", "agg_func": "Mean", "lambda_softmax": 9.0, "raw_feature_norm": "clipped_l2norm"}
    path = write_matcher(tmp_path, image, text, **opt)
    converted = convert_released(path, vocabulary=write_vocabulary(tmp_path))
    found = converted.matcher()(scenes, TextBatch.collate(CAPTIONS, converted.vocabulary))
    for i in range(3):
        for j, words in enumerate(CAPTIONS):
            v = F.normalize(image.fc(regions_of(scenes, i)), dim=1)
            e = F.normalize(text.states(ids_of(words)), dim=1)
            s = F.leaky_relu(v @ e.T, 0.1)
            alpha = F.softmax(9 * s / (s.norm(dim=1, keepdim=True) + 1e-8), 0)  # (n, T)
            expected = F.cosine_similarity(e, alpha.T @ v, dim=1).mean()
            torch.testing.assert_close(found[i, j], expected, atol=1e-5, rtol=1e-4)


def test_pos_scan_keeps_its_kind_and_clip(tmp_path):
    opt = {"cross_attn": "t2i", "agg_func": "Mean", "pos": True}
    path = write_matcher(tmp_path, PeerLinear(), PeerText(True), **opt)
    config = convert_released(path, vocabulary=write_vocabulary(tmp_path)).model.config
    assert config.kind == "pos-scan"
    assert config.clip == "leaky"


def test_vsepp_gives_the_peers_similarities(tmp_path):
    torch.manual_seed(0)
    image, text, scenes = PeerLinear().eval(), PeerText().eval(), random_scenes(3)
    converted = convert_released(write_matcher(tmp_path, image, text), vocabulary=write_vocabulary(tmp_path))
    from dataclasses import replace

    vectors = torch.randn(3, REGION_WIDTH)
    found = converted.matcher()(replace(scenes, vector=vectors), TextBatch.collate(CAPTIONS, converted.vocabulary))
    for j, words in enumerate(CAPTIONS):
        last = F.normalize(text.states(ids_of(words))[-1], dim=0)
        torch.testing.assert_close(found[:, j], F.normalize(image.fc(vectors), dim=1) @ last, atol=1e-5, rtol=1e-4)


def test_a_matcher_without_vocabulary_asks_for_it(tmp_path):
    with pytest.raises(ConfigError, match="--vocabulary"):
        convert_released(write_matcher(tmp_path, PeerLinear(), PeerText()))


def test_a_matcher_with_another_vocabulary_is_refused(tmp_path):
    path = write_matcher(tmp_path, PeerLinear(), PeerText())
    vocabulary = write_vocabulary(tmp_path)
    value = json.loads(vocabulary.read_text())
    value["word2idx"]["zebra"], value["idx2word"]["9"] = 9, "zebra"
    vocabulary.write_text(json.dumps(value))
    with pytest.raises(CountError, match="knows 9 ids"):
        convert_released(path, vocabulary=vocabulary)


def test_a_vocabulary_with_other_specials_is_refused(tmp_path):
    path = write_matcher(tmp_path, PeerLinear(), PeerText())
    words = {"a": 0, "b": 1, "c": 2, "d": 3}
    value = {"word2idx": words, "idx2word": {i: w for w, i in words.items()}, "idx": 4}
    (tmp_path / "v.json").write_text(json.dumps(value))
    with pytest.raises(DataError, match="first words are a, b"):
        convert_released(path, vocabulary=tmp_path / "v.json")


@pytest.mark.parametrize("option", ["use_abs", "no_imgnorm", "no_txtnorm"])
def test_options_that_change_the_model_are_refused(tmp_path, option):
    path = write_matcher(tmp_path, PeerLinear(), PeerText(), **{option: True})
    with pytest.raises(CheckpointError, match=option):
        convert_released(path, vocabulary=write_vocabulary(tmp_path))


def test_a_matcher_with_its_own_cnn_is_refused(tmp_path):
    image = PeerLinear()
    image.cnn = nn.Linear(2, 2)
    path = write_matcher(tmp_path, image, PeerText())
    with pytest.raises(CheckpointError, match="precomp"):
        convert_released(path, vocabulary=write_vocabulary(tmp_path))


def test_the_command_writes_a_checkpoint_once(tmp_path, capsys):
    write_updown(tmp_path)
    out = tmp_path / "updown.safetensors"
    assert main(["convert", str(tmp_path / "model-best.pth"), str(out)]) == 0
    assert "updown" in capsys.readouterr().out
    assert load(out).vocabulary.words == ("a", "cat", "dog", "on", "mat")
    assert main(["convert", str(tmp_path / "model-best.pth"), str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "model-best.pth"), str(out), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "updown"


def test_converting_needs_no_network_and_no_foreign_code(tmp_path):
    write_updown(tmp_path)
    code = (
        "import sys; from sightline.cli import main;"
        f"main(['convert', {str(tmp_path / 'model-best.pth')!r}, {str(tmp_path / 'o.safetensors')!r}, '--quiet']);"
        "print([m for m in sys.modules if m in ('misc', 'models', 'vocab')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
