"""The target with layers left out as its own drafter: which layers, what it shares, and that nothing is lost."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.engines import make_engine, native_kernels, result, run, table_decoder, tiny_decoder, tiny_file
from helpers.engines import tiny_tokenizer as tokenizer

from foredraft import LLM, SamplingParams
from foredraft.config import DraftConfig
from foredraft.drafters import DraftContext, Drafter, load_model, make_drafters, skip
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.skip import SAMPLE, choose_layers, parse_layers
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.errors import OptionError
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.load import load_decoder
from foredraft.testing import TableModel


def drafter_of(decoder: CachedDecoder, name: str = "skip", *, vocab_size: int | None = None) -> ModelDrafter:
    context = DraftContext(
        tokenizer=tokenizer(), vocab_size=tokenizer().vocab_size, kernels=decoder.kernels, decoder=decoder
    )
    [drafter] = make_drafters(DraftConfig(drafters=(name,), vocab_size=vocab_size), context)
    return model_of(drafter)


def model_of(drafter: Drafter) -> ModelDrafter:
    assert isinstance(drafter, SupervisedDrafter)
    assert isinstance(drafter._drafter, ModelDrafter)
    return drafter._drafter


def deep_decoder(seed: int = 0) -> CachedDecoder:
    return load_decoder(tiny_file("qwen2", seed=seed, num_layers=6), kernels=native_kernels())


@pytest.mark.parametrize(
    ("text", "layers"),
    [("3-10", tuple(range(3, 11))), ("0", (0,)), ("3-4+7", (3, 4, 7)), ("1-3+2-5", (1, 2, 3, 4, 5)), ("0-10", None)],
)
def test_layers_as_they_are_written(text: str, layers: tuple[int, ...] | None) -> None:
    assert parse_layers(text, 12) == (layers or tuple(range(11)))


@pytest.mark.parametrize("text", ["", "a", "3-", "-3", "5-3", "3-12", "12", "0-11", "3,4", "3 - 4", "³"])
def test_layers_that_cannot_be(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_layers(text, 12)
    assert f"skip:{text}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unimportant_layers_are_found() -> None:
    """Layers that add nothing are the ones to leave out, and nothing is lost by it."""
    source = load_decoder(tiny_file("llama", num_layers=7), kernels="reference").source
    assert source is not None
    idle = (2, 4)
    for layer in idle:
        for name in ("attn_output", "ffn_down"):
            tensor = source.tensors[f"blk.{layer}.{name}.weight"]
            object.__setattr__(tensor, "data", np.zeros_like(tensor.data))
    whole = load_decoder(source, kernels=native_kernels())
    tokens = tokenizer().encode(SAMPLE)
    chosen = choose_layers(whole, tokens, num_logits=whole.config.vocab_size)
    assert set(chosen) <= {1, 2, 3, 4, 5}
    assert set(idle) <= set(chosen)
    assert chosen == choose_layers(whole, tokens, num_logits=whole.config.vocab_size)  # and always the same


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", ["skip", "skip:1", "skip:1-4", "skip:0+2+5"])
def test_leaving_layers_out_changes_nothing(name: str, temperature: float) -> None:
    prompts = [[1, 2, 3], list(range(40))]
    params = [SamplingParams(max_tokens=30, temperature=temperature, seed=i, ignore_eos=True) for i in range(2)]
    plain = [result(sequence) for sequence in run(make_engine(deep_decoder()), prompts, params)]
    decoder = deep_decoder()
    drafter = drafter_of(decoder, name)
    assert drafter.name == "skip"
    assert not drafter.model_free
    done = run(make_engine(decoder, drafter), prompts, params)
    assert [result(sequence) for sequence in done] == plain
    assert all(sequence.counts.num_draft_tokens > 0 for sequence in done)
    assert decoder.cache.pool.num_used == 0


def test_one_layer_less_is_often_right_on_a_real_model(smollm2_path: Path) -> None:
    llm = LLM(smollm2_path, draft="skip:12-13", num_draft_tokens=3)
    params = SamplingParams(max_tokens=40)
    done = llm.generate("The water of a river runs down from the mountains to the", params)[0]
    assert (
        done.token_ids
        == llm.with_drafts("none")
        .generate("The water of a river runs down from the mountains to the", params)[0]
        .token_ids
    )
    assert done.speculation.acceptance_rate is not None
    assert done.speculation.acceptance_rate > 0.25
    assert done.speculation.methods == ("skip",)


def test_few_logits() -> None:
    decoder = deep_decoder()
    drafter = drafter_of(decoder, "skip:2", vocab_size=100)
    assert len(drafter._token_ids) < 150
    assert drafter._decoder.logits([1, 2, 3]).shape == (3, len(drafter._token_ids))


def test_targets_without_layers_to_spare() -> None:
    for decoder, problem in [
        (load_decoder(tiny_file(num_layers=2), kernels=native_kernels()), "at least 3 layers"),
        (table_decoder(TableModel())[0], "a model of ours"),
    ]:
        with pytest.raises(OptionError, match=problem):
            drafter_of(decoder)
    context = DraftContext(tokenizer=tokenizer(), vocab_size=9, kernels=native_kernels())
    with pytest.raises(OptionError, match="a model of ours"):
        make_drafters(DraftConfig(drafters=("skip",)), context)


def test_a_target_that_drafts_for_itself_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: the same file given as model and as draft is in memory twice."""
    decoder = tiny_decoder()
    monkeypatch.setattr(load_model, "load_decoder", lambda *_, **__: pytest.fail("loaded again"))
    assert decoder.source is not None
    drafter = drafter_of(decoder, str(decoder.source.path))
    assert drafter._decoder.config == decoder.config
    assert drafter._decoder.cache is not decoder.cache  # whose blocks are for its sequences alone
    params = SamplingParams(max_tokens=500, ignore_eos=True)
    [done] = run(make_engine(decoder, drafter, num_draft_tokens=3), [[1, 2, 3]], params)
    assert done.counts.num_accepted_tokens == done.counts.num_draft_tokens > 150
    assert result(done) == result(run(make_engine(tiny_decoder()), [[1, 2, 3]], params)[0])


def test_the_layer_that_matters_most_is_the_first_to_be_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: the exchanges drop the layers that were well chosen."""
    agreements = {(1,): 0.5, (1, 2): 0.6, (1, 2, 3): 0.7, (1, 2, 4): 1.0}
    choices = np.arange(10)

    class Part:
        def __init__(self, kept: Sequence[int]) -> None:
            self._agreement = agreements.get(tuple(sorted(set(range(8)) - set(kept))), 0.0)

        def logits(self, tokens: Sequence[int]) -> np.ndarray:
            rows, num_wrong = np.eye(10), round(10 * (1 - self._agreement))
            rows[:num_wrong] = np.roll(rows[:num_wrong], 1, axis=1)
            return rows

    monkeypatch.setattr(skip, "_look", lambda *_: ([0.1 * layer for layer in range(8)], choices))
    monkeypatch.setattr(skip, "load_part", lambda whole, kept: Part(kept))
    monkeypatch.setattr(skip, "_cost", lambda *_: 0.5)
    whole = SimpleNamespace(source=object(), config=SimpleNamespace(num_layers=8))
    assert choose_layers(whole, [1, 2, 3], num_logits=1) == (1, 2, 4)  # type: ignore[arg-type]
