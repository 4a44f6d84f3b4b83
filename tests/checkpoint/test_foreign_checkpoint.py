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
from sightline.checkpoint.foreign_checkpoint import _fill, convert_foreign
from sightline.checkpoint.model_checkpoint import load, save
from sightline.cli.commands import main
from sightline.errors import CheckpointError, ConfigError, CountError, DataError, MissingRecordError
from sightline.models.updown import UpDownConfig
from sightline.text.vocabulary import UNK, Vocabulary

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
    converted = convert_foreign(tmp_path / "model-best.pth")
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
    converted = convert_foreign(tmp_path / "model-best.pth")
    model = converted.captioner()
    texts = TextBatch.collate([["a", "cat"]], converted.vocabulary)
    assert (model(model.encode(random_scenes(1)), texts.ids).log_probs[..., :2].exp() == 0).all()


def test_updown_without_its_infos_says_what_is_missing(tmp_path):
    write_updown(tmp_path)
    (tmp_path / "infos_td-best.pkl").rename(tmp_path / "elsewhere.pkl")
    with pytest.raises(MissingRecordError, match="--infos"):
        convert_foreign(tmp_path / "model-best.pth")
    assert convert_foreign(tmp_path / "model-best.pth", infos=tmp_path / "elsewhere.pkl").vocabulary.words[0] == "a"


def test_updown_with_several_infos_asks_which(tmp_path):
    write_updown(tmp_path)
    for name in ("infos_a-best.pkl", "infos_b-best.pkl"):
        (tmp_path / name).write_bytes((tmp_path / "infos_td-best.pkl").read_bytes())
    with pytest.raises(MissingRecordError, match="several"):
        convert_foreign(tmp_path / "model-best.pth")


def test_updown_with_another_vocabulary_is_refused(tmp_path):
    write_updown(tmp_path, words=WORDS[:-1])
    with pytest.raises(CountError, match="says 6 words"):
        convert_foreign(tmp_path / "model-best.pth")


def test_an_infos_file_that_runs_code_is_refused(tmp_path):
    write_updown(tmp_path)

    class Hostile:
        def __reduce__(self):
            return subprocess.check_output, (["touch", str(tmp_path / "ran")],)

    (tmp_path / "infos_td-best.pkl").write_bytes(pickle.dumps({"vocab": Hostile()}))
    with pytest.raises(DataError, match="refused"):
        convert_foreign(tmp_path / "model-best.pth")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("vocab", [None, {"2": "a"}, {"1": 3}])
def test_an_infos_file_without_words_is_refused(tmp_path, vocab):
    write_updown(tmp_path)
    (tmp_path / "infos_td-best.pkl").write_bytes(pickle.dumps({"vocab": vocab}))
    with pytest.raises(DataError, match="infos_td-best"):
        convert_foreign(tmp_path / "model-best.pth")


def test_a_missing_or_misshapen_weight_is_named(tmp_path):
    write_updown(tmp_path)
    weights = torch.load(tmp_path / "model-best.pth")
    removed = weights.pop("core.attention.alpha_net.bias")
    torch.save(weights, tmp_path / "model-best.pth")
    with pytest.raises(CheckpointError, match=r"attention_score\.bias"):
        convert_foreign(tmp_path / "model-best.pth")
    torch.save({**weights, "core.attention.alpha_net.bias": removed.repeat(2)}, tmp_path / "model-best.pth")
    with pytest.raises(CheckpointError, match=r"attention_score\.bias.* shape torch\.Size\(\[2\]\)"):
        convert_foreign(tmp_path / "model-best.pth")


def test_an_output_of_several_layers_is_refused(tmp_path):
    write_updown(tmp_path)
    weights = torch.load(tmp_path / "model-best.pth")
    weights["logit.0.weight"] = weights.pop("logit.weight")
    torch.save(weights, tmp_path / "model-best.pth")
    with pytest.raises(CheckpointError, match="logit_layers"):
        convert_foreign(tmp_path / "model-best.pth")


@pytest.mark.parametrize("value", [{"weight": torch.zeros(2)}, [torch.zeros(2)], {"model": [{}, 5]}, 7])
def test_something_else_is_refused(tmp_path, value):
    torch.save(value, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match="these can: Up-Down"):
        convert_foreign(tmp_path / "x.pth")


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
    converted = convert_foreign(path, vocabulary=write_vocabulary(tmp_path))
    found = converted.matcher()(scenes, TextBatch.collate(CAPTIONS, converted.vocabulary))
    for i in range(3):
        for j, words in enumerate(CAPTIONS):
            expected = image(regions_of(scenes, i)) @ F.normalize(text.states(ids_of(words))[-1], dim=0)
            torch.testing.assert_close(found[i, j], expected, atol=1e-5, rtol=1e-4)


class PeerLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(REGION_WIDTH, SIZE)


SCAN_OPTIONS = {"cross_attn": "t2i", "agg_func": "Mean", "lambda_softmax": 9.0, "raw_feature_norm": "clipped_l2norm"}


def scan_similarity(regions, words, opt):
    """One image and one caption as SCAN compares them: queries are words in t2i, regions in i2t."""
    v, e = F.normalize(regions, dim=1), F.normalize(words, dim=1)
    query, source = (e, v) if opt["cross_attn"] == "t2i" else (v, e)
    s = source @ query.T
    if opt["raw_feature_norm"] == "clipped_l2norm":
        s = F.leaky_relu(s, 0.1)
        s = s / (s.norm(dim=1, keepdim=True) + 1e-8)
    attended = F.softmax(opt["lambda_softmax"] * s, 0).T @ source
    scores = F.cosine_similarity(query, attended, dim=1)
    if opt["agg_func"] == "LogSumExp":
        return torch.log((opt["lambda_lse"] * scores).exp().sum()) / opt["lambda_lse"]
    return {"Mean": scores.mean(), "Max": scores.max(), "Sum": scores.sum()}[opt["agg_func"]]


def assert_converted_scan_is(tmp_path, image, text, opt):
    scenes = random_scenes(3)
    path = write_matcher(tmp_path, image, text, **opt)
    converted = convert_foreign(path, vocabulary=write_vocabulary(tmp_path))
    found = converted.matcher()(scenes, TextBatch.collate(CAPTIONS, converted.vocabulary))
    for i in range(3):
        for j, words in enumerate(CAPTIONS):
            expected = scan_similarity(image.fc(regions_of(scenes, i)), text.states(ids_of(words)), opt)
            torch.testing.assert_close(found[i, j], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("weight_norm", [None, 0, "all"])
def test_scan_gives_the_peers_similarities(tmp_path, bidirectional, weight_norm):
    torch.manual_seed(0)
    image, text = PeerLinear().eval(), PeerText(bidirectional).eval()
    if weight_norm is not None:
        nn.utils.weight_norm(image.fc, dim=None if weight_norm == "all" else 0)
        image.fc.weight_g.data *= 1.7
        image.fc(torch.zeros(1, REGION_WIDTH))  # computes the weight from its parts
    assert_converted_scan_is(tmp_path, image, text, SCAN_OPTIONS)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("aggregate", ["LogSumExp", "Mean", "Max", "Sum"])
@pytest.mark.parametrize(("sharp", "lse"), [(4.0, 5.0), (20.0, 2.0)])
@pytest.mark.parametrize("norm", ["clipped_l2norm", "no_norm"])
def test_scan_keeps_every_option_of_its_similarity(tmp_path, direction, aggregate, sharp, lse, norm):
    torch.manual_seed(0)
    opt = {"cross_attn": direction, "agg_func": aggregate, "lambda_softmax": sharp, "lambda_lse": lse}
    assert_converted_scan_is(tmp_path, PeerLinear(), PeerText(True), {**opt, "raw_feature_norm": norm})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("agg_func", "Median"),
        ("cross_attn", "both"),
        ("cross_attn", 3),
        ("lambda_softmax", 400.0),
        ("lambda_softmax", "sharp"),
        ("lambda_lse", -1),
        ("raw_feature_norm", "l3norm"),
    ],
)
def test_scan_options_that_cannot_be_kept_are_named(tmp_path, option, value):
    path = write_matcher(tmp_path, PeerLinear(), PeerText(), **{**SCAN_OPTIONS, option: value})
    with pytest.raises(CheckpointError, match=rf"model_best\.pth\.tar: .*{value}"):
        convert_foreign(path, vocabulary=write_vocabulary(tmp_path))


def layered(**gru):
    text = PeerText()
    text.rnn = nn.GRU(WORD, SIZE, batch_first=True, **gru)
    return text


@pytest.mark.parametrize(
    ("text", "opt", "surplus"),
    [
        pytest.param({"num_layers": 2}, SCAN_OPTIONS, "weight_ih_l1", id="SCAN of two layers"),
        pytest.param({"num_layers": 2}, {}, "weight_ih_l1", id="VSE++ of two layers"),
        pytest.param({"bidirectional": True}, {}, "_reverse", id="VSE++ that reads both ways"),
    ],
)
def test_a_matcher_with_more_than_ours_has_is_refused(tmp_path, text, opt, surplus):
    path = write_matcher(tmp_path, PeerLinear(), layered(**text), **opt)
    with pytest.raises(CheckpointError, match=rf"Unexpected key.*{surplus}"):
        convert_foreign(path, vocabulary=write_vocabulary(tmp_path))


@pytest.mark.parametrize("opt", [{}, SCAN_OPTIONS])
@pytest.mark.parametrize("side", ["image", "text"])
def test_a_part_that_no_rule_knows_is_refused(tmp_path, opt, side):
    image, text = PeerLinear(), PeerText()
    {"image": image, "text": text}[side].gate = nn.Linear(2, 2)
    path = write_matcher(tmp_path, image, text, **opt)
    with pytest.raises(CheckpointError, match=r"gate\.weight.* no place"):
        convert_foreign(path, vocabulary=write_vocabulary(tmp_path))


def test_a_part_of_vsrn_that_no_rule_knows_is_refused(tmp_path):
    image = PeerVSRN(False)
    image.Rs_GCN_2.gate = nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"Unexpected key.*gate\.weight"):
        convert_foreign(write_matcher(tmp_path, image, PeerText()), vocabulary=write_vocabulary(tmp_path))


def test_a_model_saved_before_batch_norms_counted_is_read(tmp_path):
    peer = write_updown(tmp_path, use_bn=2)
    weights = {name: part for name, part in peer.state_dict().items() if not name.endswith("num_batches_tracked")}
    torch.save(weights, tmp_path / "model-best.pth")
    norm = convert_foreign(tmp_path / "model-best.pth").model.region_norm
    assert int(norm.num_batches_tracked) == 0
    assert torch.equal(norm.running_mean, peer.att_embed[0].running_mean)


def write_changed(tmp_path, **changes):
    """An Up-Down model with other tensors; None removes one."""
    write_updown(tmp_path)
    weights = {**torch.load(tmp_path / "model-best.pth"), **{name.replace("__", "."): t for name, t in changes.items()}}
    torch.save({name: part for name, part in weights.items() if part is not None}, tmp_path / "model-best.pth")
    return tmp_path / "model-best.pth"


def test_an_updown_with_a_layer_of_its_own_is_refused(tmp_path):
    path = write_changed(tmp_path, core__extra_gate__weight=torch.ones(4, 4))
    with pytest.raises(CheckpointError, match=r"core\.extra_gate\.weight.* no place"):
        convert_foreign(path)


@pytest.mark.parametrize("name", ["att_embed.0.weight", "embed.0.weight", "core.att_lstm.weight_hh", "logit.bias"])
@pytest.mark.parametrize(
    "value", [None, 3, torch.tensor(1.0), torch.zeros(0, 10**9)], ids=["no", "int", "0-d", "empty"]
)
def test_an_updown_without_a_tensor_names_it(tmp_path, name, value):
    path = write_changed(tmp_path, **{name.replace(".", "__"): value})
    with pytest.raises(CheckpointError, match=f"`{name}`|`output.bias`"):
        convert_foreign(path)


@pytest.mark.parametrize("opt", [{}, SCAN_OPTIONS], ids=["vsepp", "scan"])
@pytest.mark.parametrize(("side", "name"), [(0, "fc.weight"), (1, "embed.weight")])
@pytest.mark.parametrize("value", [None, 3, torch.tensor(1.0)], ids=["no", "int", "0-d"])
def test_a_matcher_without_a_tensor_names_it(tmp_path, opt, side, name, value):
    path = write_matcher(tmp_path, PeerLinear(), PeerText(), **opt)
    content = {"model": [PeerLinear().state_dict(), PeerText().state_dict()], "opt": argparse.Namespace(**opt)}
    content["model"][side][name] = value
    content["model"][side] = {key: part for key, part in content["model"][side].items() if part is not None}
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=f"`{name}`"):
        convert_foreign(path, vocabulary=write_vocabulary(tmp_path))


def test_weight_norm_without_its_lengths_names_them(tmp_path):
    image = PeerLinear()
    nn.utils.weight_norm(image.fc)
    del image.fc._parameters["weight_g"]
    path = write_matcher(tmp_path, image, PeerText(), **SCAN_OPTIONS)
    with pytest.raises(CheckpointError, match=r"`fc\.weight_g`"):
        convert_foreign(path, vocabulary=write_vocabulary(tmp_path))


@pytest.mark.parametrize("shape", [(SIZE + 1, 1), (SIZE,), (2, SIZE)])
def test_weight_norm_of_other_lengths_is_told(tmp_path, shape):
    image = PeerLinear()
    nn.utils.weight_norm(image.fc)
    image.fc.weight_g = nn.Parameter(torch.ones(shape))
    path = write_matcher(tmp_path, image, PeerText(), **SCAN_OPTIONS)
    with pytest.raises(CheckpointError, match=r"`fc\.weight_g` has shape"):
        convert_foreign(path, vocabulary=write_vocabulary(tmp_path))


@pytest.mark.parametrize("rows", [len(WORDS), len(WORDS) + 3])  # fewer; and as many as our layout has
def test_an_updown_with_other_rows_in_one_layer_is_refused(tmp_path, rows):
    with pytest.raises(CheckpointError, match=r"`word_embedding\.weight` has not 7 rows"):
        convert_foreign(write_changed(tmp_path, embed__0__weight=torch.ones(rows, 6)))


def test_sizes_that_other_tensors_do_not_have_take_no_memory(tmp_path):
    path = write_changed(tmp_path, core__att_lstm__weight_hh=torch.zeros(1, 200_000))
    with pytest.raises(CheckpointError, match="shape"):
        convert_foreign(path)


def test_sizes_that_no_tensor_can_have_are_told():
    with pytest.raises(CheckpointError, match="no model can have its sizes"):
        _fill(UpDownConfig(hidden_size=2**40), Vocabulary(WORDS), {}, "self-critical", {})


def test_a_matcher_without_options_is_vsepp(tmp_path):
    content = {"model": [PeerLinear().state_dict(), PeerText().state_dict()]}
    torch.save(content, tmp_path / "m.pth.tar")
    converted = convert_foreign(tmp_path / "m.pth.tar", vocabulary=write_vocabulary(tmp_path))
    assert converted.model.config.kind == "vsepp"
    assert converted.card["options"] == {}


def test_half_precision_becomes_single_and_views_become_whole(tmp_path):
    write_updown(tmp_path)
    weights = torch.load(tmp_path / "model-best.pth")
    both = torch.stack([weights["ctx2att.bias"], weights["core.attention.h2att.bias"]]).half()
    path = write_changed(tmp_path, ctx2att__bias=both[0], core__attention__h2att__bias=both[1])
    save(tmp_path / "o.safetensors", convert_foreign(path))
    found = load(tmp_path / "o.safetensors").model.region_attention.bias
    assert torch.equal(found, both[0].float())


def test_pos_scan_keeps_its_kind_and_clip(tmp_path):
    opt = {"cross_attn": "t2i", "agg_func": "Mean", "pos": True}
    path = write_matcher(tmp_path, PeerLinear(), PeerText(True), **opt)
    config = convert_foreign(path, vocabulary=write_vocabulary(tmp_path)).model.config
    assert config.kind == "pos-scan"
    assert config.clip == "leaky"


def test_vsepp_gives_the_peers_similarities(tmp_path):
    torch.manual_seed(0)
    image, text, scenes = PeerLinear().eval(), PeerText().eval(), random_scenes(3)
    converted = convert_foreign(write_matcher(tmp_path, image, text), vocabulary=write_vocabulary(tmp_path))
    from dataclasses import replace

    vectors = torch.randn(3, REGION_WIDTH)
    found = converted.matcher()(replace(scenes, vector=vectors), TextBatch.collate(CAPTIONS, converted.vocabulary))
    for j, words in enumerate(CAPTIONS):
        last = F.normalize(text.states(ids_of(words))[-1], dim=0)
        torch.testing.assert_close(found[:, j], F.normalize(image.fc(vectors), dim=1) @ last, atol=1e-5, rtol=1e-4)


def test_a_matcher_without_vocabulary_asks_for_it(tmp_path):
    with pytest.raises(ConfigError, match="--vocabulary"):
        convert_foreign(write_matcher(tmp_path, PeerLinear(), PeerText()))


def test_a_matcher_with_another_vocabulary_is_refused(tmp_path):
    path = write_matcher(tmp_path, PeerLinear(), PeerText())
    vocabulary = write_vocabulary(tmp_path)
    value = json.loads(vocabulary.read_text())
    value["word2idx"]["zebra"], value["idx2word"]["9"] = 9, "zebra"
    vocabulary.write_text(json.dumps(value))
    with pytest.raises(CountError, match="knows 9 ids"):
        convert_foreign(path, vocabulary=vocabulary)


def test_a_vocabulary_with_other_specials_is_refused(tmp_path):
    path = write_matcher(tmp_path, PeerLinear(), PeerText())
    words = {"a": 0, "b": 1, "c": 2, "d": 3}
    value = {"word2idx": words, "idx2word": {i: w for w, i in words.items()}, "idx": 4}
    (tmp_path / "v.json").write_text(json.dumps(value))
    with pytest.raises(DataError, match="first words are a, b"):
        convert_foreign(path, vocabulary=tmp_path / "v.json")


@pytest.mark.parametrize(
    ("option", "value"), [("use_abs", True), ("no_imgnorm", True), ("no_txtnorm", True), ("measure", "order")]
)
def test_options_that_change_the_model_are_refused(tmp_path, option, value):
    path = write_matcher(tmp_path, PeerLinear(), PeerText(), **{option: value})
    with pytest.raises(CheckpointError, match=option):
        convert_foreign(path, vocabulary=write_vocabulary(tmp_path))


def test_a_matcher_with_its_own_cnn_is_refused(tmp_path):
    image = PeerLinear()
    image.cnn = nn.Linear(2, 2)
    path = write_matcher(tmp_path, image, PeerText())
    with pytest.raises(CheckpointError, match="precomp"):
        convert_foreign(path, vocabulary=write_vocabulary(tmp_path))


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


def test_help_names_what_to_give(capsys):
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    told = capsys.readouterr().out
    assert "CHECKPOINT OUT" in told
    assert "{None}" not in told


def test_a_readme_is_no_checkpoint(tmp_path, capsys):
    (tmp_path / "README.md").write_text("# Sightline\n\nCaptions photos.\n")
    assert main(["convert", str(tmp_path / "README.md"), str(tmp_path / "o.safetensors")]) == 2
    assert "not a PyTorch file" in capsys.readouterr().err


def test_converting_needs_no_network_and_no_foreign_code(tmp_path):
    write_updown(tmp_path)
    code = (
        "import sys; from sightline.cli.commands import main;"
        f"main(['convert', {str(tmp_path / 'model-best.pth')!r}, {str(tmp_path / 'o.safetensors')!r}, '--quiet']);"
        "print([m for m in sys.modules if m in ('misc', 'models', 'vocab')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
