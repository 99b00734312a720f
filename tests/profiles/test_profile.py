"""The table of a profile against the maps, by hand; streaming; special tokens; what is skipped and refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel, T5Config, T5Model

import geoattn as ga
from geoattn.statistics.histograms import EDGES


@pytest.fixture(scope="module")
def model() -> ga.models.LViT:
    return ga.load_model("lvit-digits")


@pytest.fixture(scope="module")
def digits() -> ga.datasets.Dataset:
    return ga.load_data("digits", split="test", limit=12)


def bert(**changes: object) -> BertModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.5,
        **changes,
    )
    return BertModel(config).eval()


def padded_text() -> dict[str, torch.Tensor]:
    """Two sentences of 9 and 6 tokens: 1 begins, 2 ends, 0 pads."""
    ids = torch.tensor([[1, 11, 12, 13, 14, 15, 16, 17, 2], [1, 21, 22, 23, 24, 2, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def maps(model: nn.Module, batch: object) -> list[ga.attention.Call]:
    with ga.capture(model) as record, torch.no_grad():
        model(**batch) if isinstance(batch, dict) else model(batch)
    return list(record)


def rows_of(profile: ga.profiles.Profile, lens: str, layer: int | None, head: int | None) -> dict[str, float]:
    table = profile.to_pandas()
    chosen = table[
        (table["lens"] == lens)
        & (table["layer"].isna() if layer is None else (table["layer"] == layer).fillna(False))
        & (table["head"].isna() if head is None else (table["head"] == head).fillna(False))
    ]
    return dict(zip(chosen["statistic"], chosen["value"], strict=True))


def test_each_number_of_a_padded_text_model_by_hand() -> None:
    net, batch = bert(), padded_text()
    profile = ga.profile(net, [batch], examples=0)
    pooled = []
    for layer, call in enumerate(maps(net, batch)):
        attention, valid = call.attention(), call.valid
        for head in (0, 1, None):
            chosen = attention if head is None else attention[:, head : head + 1]
            mask = valid[:, None].expand(-1, chosen.shape[1], -1)
            kappa = ga.ollivier_ricci(chosen, mask=mask).values()
            found = rows_of(profile, "curvature", layer, head)
            assert found["mean"] == pytest.approx(kappa.mean(), rel=1e-12)
            assert found["distance_to_one"] == pytest.approx((1 - kappa).mean(), rel=1e-12)
            assert found["negative_share"] == (kappa < 0).mean()
            assert (found["min"], found["max"]) == (kappa.min(), kappa.max())
            assert found["std"] == pytest.approx(kappa.std(), rel=1e-9)
            for q in (5, 25, 50, 75, 95):
                near = np.quantile(kappa, [max(0, q / 100 - 0.06), min(1, q / 100 + 0.06)])
                assert near[0] - 0.011 <= found[f"q{q:02d}"] <= near[1] + 0.011
            rows, entropies, variances = [], [], []
            for s, h in np.ndindex(*chosen.shape[:2]):
                own = chosen[s, h][valid[s]][:, valid[s]].double()
                entropies += (-(own * own.log()).sum(-1)).tolist()
                rows += own.diagonal().tolist()
                variances.append(float(own.var(correction=0)))
            found = rows_of(profile, "weights", layer, head)
            assert found["row_entropy"] == pytest.approx(np.mean(entropies), rel=1e-6)
            assert found["self_weight"] == pytest.approx(np.mean(rows), rel=1e-6)
            assert found["variance"] == pytest.approx(np.mean(variances), rel=1e-5)
        pooled.append(kappa)
    assert rows_of(profile, "curvature", None, None)["mean"] == pytest.approx(np.concatenate(pooled).mean(), rel=1e-12)


def test_variance_of_a_causal_map_is_over_what_the_mask_allows() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=16,
    )  # fmt: skip
    net = LlamaModel(config).eval()
    batch = {"input_ids": torch.arange(2, 9)[None]}
    profile = ga.profile(net, [batch])
    attention = maps(net, batch)[0].attention()[0].double()
    below = torch.ones(7, 7, dtype=torch.bool).tril()
    expected = np.mean([float(a[below].var(correction=0)) for a in attention])
    assert profile.value("variance", lens="weights")[0] == pytest.approx(expected, rel=1e-6)


def test_batches_of_any_size_give_the_same_table(model: ga.models.LViT, digits: ga.datasets.Dataset) -> None:
    pixels = digits.pixels()
    whole = ga.profile(model, [pixels])
    parts = ga.profile(model, iter(pixels.split(5)))
    labelled = ga.profile(model, [(p, torch.zeros(len(p))) for p in pixels.split(3)])
    data = ga.profile(model, digits)
    numbers = ["value", "lower", "upper", "count", "samples"]
    for other in (parts, labelled, data):
        np.testing.assert_allclose(
            whole.table[numbers].to_numpy(float), other.table[numbers].to_numpy(float), rtol=1e-4, atol=1e-5
        )
    assert whole.settings["samples"] == parts.settings["samples"] == 12


def test_sampled_edges_do_not_depend_on_the_batches_or_threads(
    model: ga.models.LViT, digits: ga.datasets.Dataset
) -> None:
    pixels = digits.pixels()
    a = ga.profile(model, [pixels], edges=20, threads=1)
    b = ga.profile(model, list(pixels.split(1)), edges=20, threads=2)
    c = ga.profile(model, [pixels], edges=20, seed=1)
    assert a.value("mean", layer=3)[0] == pytest.approx(b.value("mean", layer=3)[0], rel=1e-3)
    assert a.value("mean", layer=3)[0] != c.value("mean", layer=3)[0]
    assert a.settings["values"] == 12 * 8 * 20
    assert a.settings["edges_in_all"] == 12 * 8 * 136


def test_intervals_cover_and_shrink(model: ga.models.LViT) -> None:
    everything = ga.load_data("digits", split="test")
    truth = ga.profile(model, everything, resamplings=2).value("distance_to_one", layer=2)[0]
    covered = 0
    for k in range(12):
        part = ga.profile(model, everything.subset(range(30 * k, 30 * k + 30)), examples=0, layers="*layers.2.0")
        _, low, high = part.value("distance_to_one")
        covered += low <= truth <= high
    # digits of the test set go writer by writer, so parts differ more than random samples: 95 % cannot be expected
    assert covered >= 6
    small = ga.profile(model, everything.subset(range(20)), examples=0)
    large = ga.profile(model, everything.subset(range(320)), examples=0)
    widths = [np.diff(p.value("distance_to_one")[1:])[0] for p in (small, large)]
    assert widths[1] < 0.5 * widths[0]


def test_interval_is_that_of_the_plain_bootstrap(model: ga.models.LViT) -> None:
    data = ga.load_data("digits", split="test", limit=80)
    profile = ga.profile(model, data, layers="*layers.4.0", resamplings=4000, examples=0)
    call = maps(model, data.pixels())[4]
    means = np.array([1 - ga.ollivier_ricci(a).values().mean() for a in call.attention()[:, 0]])
    draws = np.random.default_rng(0).integers(len(means), size=(4000, len(means)))
    low, high = np.quantile(means[draws].mean(axis=1), [0.025, 0.975])
    _, lower, upper = profile.value("distance_to_one")
    assert (lower, upper) == pytest.approx((low, high), abs=0.15 * (high - low))


def test_one_sample_has_no_interval(model: ga.models.LViT, digits: ga.datasets.Dataset) -> None:
    value, low, high = ga.profile(model, digits.subset([0])).value("mean")
    assert np.isfinite(value)
    assert np.isnan([low, high]).all()


def test_content_of_text(digits: ga.datasets.Dataset) -> None:
    net, batch = bert().double(), padded_text()  # in float32 maps differ in the last digit with the number of threads
    profile = ga.profile(net, [batch], tokens="content", special=[0, 1, 2])
    kappas = []
    for call in maps(net, batch):
        for s, length in enumerate((7, 4)):
            inner = call.attention(sample=s)[0, :, 1 : 1 + length, 1 : 1 + length].double()
            inner = inner / inner.sum(-1, keepdim=True)
            kappas.append(ga.ollivier_ricci(inner).values())
    assert profile.value("mean")[0] == pytest.approx(np.concatenate(kappas).mean(), rel=1e-9)
    assert profile.settings["values"] == 2 * 2 * (21 + 6)
    with pytest.raises(ga.GeoattnError, match="give tokenizer=, or special="):
        ga.profile(net, [batch], tokens="content")
    by_config = ga.profile(bert(cls_token_id=1, sep_token_id=2), [batch], tokens="content")
    assert by_config.settings["values"] == profile.settings["values"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_first_tokens_of_a_text_leave_the_graph_on_request(side: str) -> None:
    """After padding on the left the first token is another place: the sink of a decoder."""
    net, batch = bert().double(), padded_text()
    if side == "left":
        batch = {name: value.flip(-1) for name, value in batch.items()}
    lengths = batch["attention_mask"].sum(-1).tolist()
    kappas = []
    for call in maps(net, batch):
        for s, length in enumerate(lengths):
            places = batch["attention_mask"][s].bool().nonzero().ravel()[1:]
            inner = call.attention(sample=s)[0][:, places][:, :, places].double()
            kappas.append(ga.ollivier_ricci(inner / inner.sum(-1, keepdim=True)).values())
            assert len(places) == length - 1
    profile = ga.profile(net, [batch], tokens="content", special=1)
    assert profile.value("mean")[0] == pytest.approx(np.concatenate(kappas).mean(), rel=1e-9)


def test_content_of_images(model: ga.models.LViT, digits: ga.datasets.Dataset) -> None:
    found = ga.profile(model, digits, tokens="content")
    told = ga.profile(model, digits, tokens="content", special=1)
    assert found.settings["values"] == 12 * 8 * 120
    assert found.table.equals(told.table)
    with pytest.raises(ga.GeoattnError, match="give special=N"):
        ga.profile(model, digits, tokens="content", special=17)


def test_several_conventions(model: ga.models.LViT, digits: ga.datasets.Dataset) -> None:
    profile = ga.profile(model, digits, convention=["hop", "markov", ga.Convention(alpha=0.5)])
    assert [c.name for c in profile.conventions] == ["hop", "markov", "markov (alpha=0.5)"]
    alone = ga.profile(model, digits, convention="markov")
    assert profile.value("mean", layer=1, convention="markov") == alone.value("mean", layer=1)
    counts = profile.histograms["markov"][1]
    assert counts.sum() == 12 * 136
    assert len(EDGES) - 1 == counts.shape[1]
    with pytest.raises(ga.GeoattnError, match="each convention once"):
        ga.profile(model, digits, convention=["hop", "hop"])


def test_spectrum_of_each_map(model: ga.models.LViT, digits: ga.datasets.Dataset) -> None:
    profile = ga.profile(model, digits)
    attention = maps(model, digits.pixels())[3].attention()[:, 0]
    result = ga.spectrum(attention)
    for name, values in {
        "second_eigenvalue": result.second,
        "smallest_eigenvalue": result.smallest_real,
        "dobrushin": result.dobrushin,
        "irreversibility": result.irreversibility,
    }.items():
        assert profile.value(name, layer=3, lens="spectrum")[0] == pytest.approx(np.mean(values), rel=1e-6)
    alone = ga.profile(model, digits, lenses="curvature")
    assert set(alone.table["lens"]) == {"curvature"}


def test_examples(model: ga.models.LViT, digits: ga.datasets.Dataset) -> None:
    profile = ga.profile(model, digits, examples=2)
    assert [e.sample for e in profile.examples] == [0, 1]
    example = profile.examples[1]
    assert example.grid == (4, 4, 1)
    assert example.tokens[0] == "CLS"
    assert example.image is not None
    call = maps(model, digits.pixels())[5]
    attention = call.attention(sample=1)[0]
    kappa = ga.ollivier_ricci(attention).kappa
    _, i, j = example.edges[5].T
    assert len(i) == 136
    np.testing.assert_allclose(example.kappa[5], kappa[0, i, j], rtol=1e-6)
    symmetric = ((attention + attention.mT) / 2)[0].double()
    np.testing.assert_allclose(example.weights[5], symmetric[i, j], rtol=1e-5)


def test_a_model_in_training_keeps_its_mode_and_is_measured_without_dropout(digits: ga.datasets.Dataset) -> None:
    net = ga.load_model("lvit-digits").train()
    part = net.transformer.layers[0]
    part.eval()
    a, b = ga.profile(net, digits), ga.profile(net, digits)
    assert a.table.equals(b.table)
    assert net.training
    assert not part.training


def test_cross_attention_and_generation_are_skipped_and_counted() -> None:
    torch.manual_seed(0)
    config = T5Config(vocab_size=30, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0)
    net = T5Model(config).eval()
    batch = {"input_ids": torch.arange(1, 7)[None], "decoder_input_ids": torch.arange(1, 6)[None]}
    profile = ga.profile(net, [batch])
    assert len(profile.layers) == 2
    assert list(profile.settings["skipped"].values()) == [1]


class Windowed(nn.Module):
    """Two windows of four tokens each, as in Swin."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, _, d = x.shape
        x = x.reshape(b * 2, 1, 4, d)
        return functional.scaled_dot_product_attention(x, x, x).reshape(b, 8, d)


@pytest.mark.filterwarnings("ignore:attention of 'Windowed'. maps of 4 x 4 in a module with 8 tokens")
def test_windows_of_a_sample_are_resampled_together() -> None:
    torch.manual_seed(0)
    profile = ga.profile(Windowed(), [torch.randn(6, 8, 4)])
    assert profile.settings["samples"] == 6
    assert profile.settings["maps"] == 12
    assert np.isfinite(profile.value("mean")).all()


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.filterwarnings("ignore:attention of 'transformer.layers.0.0'. the map of a real token is not finite")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "bert"}, r"torch\.nn\.Module or a pipeline of transformers; got str"),
        ({"model": Nothing()}, "no attention ran"),
        ({"batches": []}, "batches were empty"),
        ({"batches": 3}, "cannot use int as data"),
        ({"batches": [["a text"]]}, "holds texts, but the model takes images"),
        ({"batches": [None]}, "batch 0: cannot use NoneType as data"),
        ({"batches": [torch.zeros(0, 1, 8, 8)]}, "batch 0 holds no sample"),
        ({"batches": [torch.full((1, 1, 8, 8), float("nan"))]}, r"transformer\.layers\.0\.0, samples 0 to 0: .*finite"),
        ({"tokens": "some"}, "tokens must be"),
        ({"special": "abc", "tokens": "content"}, "special must be"),
        ({"special": -1, "tokens": "content"}, "negative"),
        ({"edges": 0}, "edges must be"),
        ({"layers": "nowhere.*"}, "nowhere"),
        ({"level": 1.0}, "level"),
        ({"lenses": ["curvature", "colour"]}, "unknown lens 'colour'"),
        ({"resamplings": 1}, "resamplings"),
        ({"convention": "grc"}, "unknown convention"),
        ({"convention": []}, "at least one"),
        ({"convention": ga.Convention(heads="mean")}, "by head"),
        ({"examples": -1}, "examples"),
        ({"threads": 0}, "threads"),
    ],
)
def test_bad_input(model: ga.models.LViT, change: dict, words: str) -> None:
    arguments = {"model": model, "batches": [torch.rand(1, 1, 8, 8)], **change}
    with pytest.raises(ga.GeoattnError, match=words):
        ga.profile(arguments.pop("model"), arguments.pop("batches"), **arguments)


def test_texts_need_a_tokenizer() -> None:
    texts = ga.datasets.Dataset(
        "mine", "test", "here", ("a", "b"), np.zeros(1, int), np.zeros(1, int), "", texts=("hello",)
    )
    with pytest.raises(ga.GeoattnError, match="give tokenizer="):
        ga.profile(bert(), texts)


def test_progress_ends_at_the_total(model: ga.models.LViT, digits: ga.datasets.Dataset) -> None:
    seen: list[tuple[float, int | None]] = []
    ga.profile(model, digits, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (12, 12)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
