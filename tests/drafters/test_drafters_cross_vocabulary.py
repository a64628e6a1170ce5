"""A draft model with other tokens than the target: what it is asked, what is proposed, and that nothing is lost."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny
from helpers.drafting import View, no_features, unspeculated
from helpers.engines import make_engine, native_kernels, result, run, tiny_decoder, tiny_file, tiny_tokenizer
from helpers.renaming import renamed, translated

from foredraft import LLM, SamplingParams
from foredraft.config import DraftConfig
from foredraft.drafters import DraftContext, make_drafters
from foredraft.drafters.base import Drafter, DrafterSpec, Outcome, PromptFeatures, SequenceView
from foredraft.drafters.cross_vocabulary import CrossVocabularyDrafter, names_of_tokens, original
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.kernels.operations import Kernels
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.text import Tokenizer, load_tokenizer
from foredraft.tree import Budget, DraftTree

TEXT = "The cat sat on the mat, and the dog, too. " * 3
CHAT = "Write a Python function that adds two numbers, with a docstring."


class Saying(Drafter):
    """Drafts the tokens of a text, whatever was said before; notes what it is shown and asked."""

    spec = DrafterSpec(name="saying", model_free=False, can_begin_late=True, identity="one")

    def __init__(self, tokens: Sequence[int], confidence: Sequence[float] | None = None) -> None:
        self._tokens, self._confidence = tuple(tokens), tuple(confidence or [0.5] * len(tokens))
        self.shown: list[int] = []
        self.ended: list[int] = []
        self.num_prefilled = self.num_at_end = self.num_resets = 0

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self.shown = [*sequences[0].tokens] if sequences else []
        return [
            DraftTree.chain(s.tokens[-1], self._tokens[: b.num_tokens], self._confidence[: b.num_tokens])
            for s, b in zip(sequences, budgets, strict=True)
        ]

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        return len(sequence.tokens)

    def prefill(self, sequence: SequenceView, num_tokens: int) -> None:
        self.num_prefilled += num_tokens

    def begin_late(self, sequence: SequenceView, num_tokens: int) -> None:
        self.num_at_end = num_tokens

    def time_step(self, *, num_tokens: int, context: int) -> float:
        return 0.5

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        raise AssertionError("a drafter of another vocabulary is not told of the target's tokens")

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        raise AssertionError("a drafter of another vocabulary is not told of the target's tokens")

    def end(self, sequence_id: int) -> None:
        self.ended.append(sequence_id)

    def reset_prefix_cache(self) -> None:
        self.num_resets += 1


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(open_model(smollm2_path).tokenizer_data)


def made(model: Path, tokenizer: Tokenizer, kernels: Kernels, *, num_branches: int = 1) -> CrossVocabularyDrafter:
    context = DraftContext(tokenizer=tokenizer, vocab_size=tokenizer.vocab_size, kernels=kernels)
    [drafter] = make_drafters(DraftConfig(drafters=(str(model),), num_branches=num_branches), context)
    assert isinstance(drafter, SupervisedDrafter)
    assert isinstance(drafter._drafter, CrossVocabularyDrafter)
    return drafter._drafter


def propose(drafter: CrossVocabularyDrafter, view: View, budget: int) -> DraftTree:
    [tree] = drafter.propose([view], [Budget(budget)])
    return tree


def test_drafted_text_is_proposed_in_the_targets_tokens(smollm2: Tokenizer) -> None:
    """One token of the drafter may be several of the target, or the other way round."""
    target, text = tiny_tokenizer(), "and the then"
    own = smollm2.encode(text, add_special=False)
    expected = target.encode(text, add_special=False)
    assert len(expected) > len(own)
    view = View(target.encode(TEXT))
    drafter = CrossVocabularyDrafter(Saying(own, [0.9] * len(own)), target=target, own=smollm2)
    tree = propose(drafter, view, 64)
    assert tree.tokens == (view.tokens[-1], *expected[:-1])  # the last may become another with what follows
    assert tree.is_chain
    assert set(tree.confidence[1:]) == {0.9, 1.0}
    few = propose(drafter, view, 2).tokens
    assert few == tree.tokens[: len(few)]
    assert len(few) == 3
    assert propose(drafter, view, 0).num_draft_tokens == 0
    both = [*own, *smollm2.encode(" a", add_special=False), *smollm2.encode(",", add_special=False)]
    shared = propose(CrossVocabularyDrafter(Saying(both), target=target, own=smollm2), view, 64)
    assert target.token_bytes(shared.tokens[-1]) == b","  # which both vocabularies have
    back = CrossVocabularyDrafter(Saying(expected, [0.9] * len(expected)), target=smollm2, own=target)
    whole = propose(back, View(smollm2.encode(TEXT)), 64)
    assert whole.tokens[1:] == tuple(own[:-1])
    starts = np.cumsum([0, *(len(smollm2.token_bytes(token)) for token in own)])
    own_starts = np.cumsum([0, *(len(target.token_bytes(token)) for token in expected)])[:-1]
    for place, confidence in enumerate(whole.confidence[1:]):
        inside = ((own_starts >= starts[place]) & (own_starts < starts[place + 1])).sum()
        assert confidence == pytest.approx(0.9**inside)


def test_the_drafter_is_shown_the_text_in_its_own_tokens(smollm2: Tokenizer) -> None:
    target = tiny_tokenizer()
    saying = Saying(smollm2.encode(" a b c", add_special=False))
    drafter = CrossVocabularyDrafter(saying, target=target, own=smollm2)
    view = View(target.encode(TEXT))
    for more in ("", " then", " a", "n", " emoji 😀", "\n\n", "  and"):
        view.tokens.extend(target.encode(more))
        tree = propose(drafter, view, 2)
        assert tree.tokens[0] == view.tokens[-1]
        assert b"".join(smollm2.token_bytes(t) for t in saying.shown) == b"".join(map(target.token_bytes, view.tokens))
    assert drafter.num_uncached_tokens(view) == len(saying.shown)
    drafter.prefill(view, 7)
    assert saying.num_prefilled == 7
    drafter.begin_late(view, 5)
    assert saying.num_at_end == 5
    assert drafter.time_step(num_tokens=1, context=1) == 0.5
    drafter.begin(view, no_features(view))
    drafter.observe([view], unspeculated([view]))
    drafter.reset_prefix_cache()
    assert saying.num_resets == 1
    drafter.end(view.id)
    assert saying.ended == [view.id]


def test_it_says_that_it_has_another_tokenizer_and_is_else_what_it_wraps(smollm2: Tokenizer) -> None:
    drafter = CrossVocabularyDrafter(Saying([]), target=tiny_tokenizer(), own=smollm2)
    assert drafter.spec == replace(Saying.spec, name="saying (another tokenizer)")
    assert drafter.names == (drafter.name,) == ("saying (another tokenizer)",)


def test_half_a_character_at_the_seam(smollm2: Tokenizer) -> None:
    target = tiny_tokenizer()
    emoji = target.encode("😀")
    assert len(emoji) == 4  # of a byte each
    own = smollm2.encode("😀 is", add_special=False)
    view = View([*target.encode("Look: "), *emoji[:2]])
    rest = b"\x98\x80 is"
    byte_tokens = [smollm2.vocabulary.tokens.index(smollm2.vocabulary.tokens[t]) for t in own]
    assert byte_tokens == own
    pieces = [smollm2.encode(" is", add_special=False)[0]]
    halves = [t for t in range(smollm2.vocab_size) if smollm2.token_bytes(t) in (b"\x98", b"\x80")]
    halves.sort(key=lambda t: smollm2.token_bytes(t) != b"\x98")
    drafter = CrossVocabularyDrafter(Saying([*halves, *pieces]), target=target, own=smollm2)
    tree = propose(drafter, view, 16)
    drafted = b"".join(map(target.token_bytes, tree.tokens[1:]))
    assert rest.startswith(drafted)
    assert tree.tokens[1:3] == tuple(emoji[2:])


def test_an_end_of_the_drafter_is_an_end_of_the_target(smollm2: Tokenizer) -> None:
    target = tiny_tokenizer()
    own = [*smollm2.encode(" the end.", add_special=False), smollm2.encode("<|im_end|>", parse_special=True)[0]]
    tree = propose(CrossVocabularyDrafter(Saying(own), target=target, own=smollm2), View(target.encode(TEXT)), 64)
    expected = target.encode(" the end.", add_special=False)
    assert tree.tokens[1:-1] == tuple(expected)  # nothing is left out: nothing can follow
    assert tree.tokens[-1] in target.eos_ids
    unknown = [token for token in smollm2.special_ids if smollm2.token_text(token) == "<jupyter_start>"]
    tree = propose(
        CrossVocabularyDrafter(Saying([*own[:-1], *unknown, *own]), target=target, own=smollm2),
        View(target.encode(TEXT)),
        64,
    )
    assert tree.tokens[1:] == tuple(expected)


def test_branches_stay_branches(smollm2: Tokenizer) -> None:
    target = tiny_tokenizer()
    a, b, c = (smollm2.encode(text, add_special=False)[0] for text in (" a", " b", " c"))

    class Branching(Saying):
        def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
            return [DraftTree((s.tokens[-1], a, b, c, c), (-1, 0, 0, 1, 2), (1, 0.6, 0.3, 0.5, 0.4)) for s in sequences]

    tree = propose(CrossVocabularyDrafter(Branching([]), target=target, own=smollm2), View(target.encode(TEXT)), 64)
    texts = {b"".join(target.token_bytes(tree.tokens[above]) for above in tree.path(n)) for n in range(tree.num_nodes)}
    assert {b" a", b" b"} <= texts
    assert not tree.is_chain
    assert tree.tokens[1] == target.encode(" a")[0]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_target_itself_under_other_names_is_nearly_always_right(
    smollm2_path: Path, smollm2: Tokenizer, temperature: float
) -> None:
    """Same noise for the same token at the same place: what is sampled is drafted, too."""
    order = np.random.default_rng(0).permutation(smollm2.vocab_size).tolist()
    own = renamed(smollm2, order)
    decoder = load_decoder(smollm2_path, kernels=native_kernels())
    assert names_of_tokens(smollm2, own)[:100].tolist() == order[:100]
    drafter = translated(decoder, smollm2, order)
    prompt = smollm2.encode_chat([{"role": "user", "content": CHAT}])
    params = SamplingParams(max_tokens=40, temperature=temperature, seed=4, top_k=40)
    engine = make_engine(decoder, drafter, tokenizer=smollm2, num_draft_tokens=4)
    plain = make_engine(load_decoder(smollm2_path, kernels=native_kernels()), tokenizer=smollm2)
    [done], [expected] = run(engine, [prompt], params), run(plain, [prompt], params)
    assert result(done) == result(expected)
    assert done.counts.num_accepted_tokens > 0.8 * done.counts.num_draft_tokens > 15


@pytest.mark.parametrize(("temperature", "num_branches"), [(0.0, 1), (0.9, 3)])
def test_texts_that_become_longer_or_shorter(smollm2_path: Path, temperature: float, num_branches: int) -> None:
    """Kind: positions of one text used for the other. Nothing of it reaches the completion."""
    prompts = [TEXT, "a b c d a b", "😀 emoji 😀"]
    options = {"repetition_penalty": 1.3, "logit_bias": {5: -2.0}} if temperature else {}
    params = [
        SamplingParams(max_tokens=20, temperature=temperature, seed=i, ignore_eos=True, **options) for i in range(3)
    ]
    for target, draft in [(tiny_file(), smollm2_path), (smollm2_path, tiny_file())]:
        decoder = load_decoder(target, kernels=native_kernels())
        tokenizer = load_tokenizer(open_model(target).tokenizer_data)
        ids = [tokenizer.encode(prompt) for prompt in prompts]
        drafter = made(draft, tokenizer, decoder.kernels, num_branches=num_branches)
        plain = [result(r) for r in run(make_engine(decoder, tokenizer=tokenizer), ids, params)]
        done = run(make_engine(decoder, drafter, tokenizer=tokenizer), ids, params)
        assert [result(sequence) for sequence in done] == plain
        assert sum(sequence.counts.num_draft_tokens for sequence in done) > 0
        assert drafter._translations == {}


def test_a_draft_model_of_another_family_just_works(smollm2_path: Path, tmp_path: Path) -> None:
    plain = LLM(tiny_file(), draft="none")
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    with_draft = plain.with_drafts(smollm2_path, num_draft_tokens=4)
    done = with_draft.generate(TEXT, params)[0]
    assert done.token_ids == plain.generate(TEXT, params)[0].token_ids
    assert done.speculation.methods == ("model:smollm2-135m (another tokenizer)",)


def test_a_permuted_vocabulary_is_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a vocabulary of equal size with other tokens is accepted without a word, and its ids mean other texts."""
    tokens = tiny.vocabulary()
    swapped = [*tokens[:40], tokens[41], tokens[40], *tokens[42:]]
    monkeypatch.setattr(tiny, "vocabulary", lambda: swapped)
    other = tiny.TinyModel().write_gguf(tmp_path / "other.gguf")
    monkeypatch.undo()
    decoder = tiny_decoder()
    drafter = made(other, tiny_tokenizer(), decoder.kernels)
    inner = drafter._drafter
    assert isinstance(inner, ModelDrafter)
    names = dict(zip(inner._own_ids.tolist(), inner._token_ids.tolist(), strict=True))
    assert names[40] == 41
    assert names[41] == 40
    assert names[39] == 39
    params = SamplingParams(max_tokens=40, temperature=1.0, seed=2, ignore_eos=True)
    [done] = run(make_engine(decoder, drafter), [tiny_tokenizer().encode(TEXT)], params)
    assert result(done) == result(run(make_engine(tiny_decoder()), [tiny_tokenizer().encode(TEXT)], params)[0])
    assert done.counts.num_draft_tokens > 0


def test_a_sequence_is_seen_as_it_is_now(smollm2: Tokenizer) -> None:
    """Kind: noise and options are those of the round in which a sequence was first seen."""
    target = tiny_tokenizer()
    seen: list[object] = []

    class Looking(Saying):
        def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
            seen.extend(map(original, sequences))
            return super().propose(sequences, budgets)

    drafter = CrossVocabularyDrafter(Looking([]), target=target, own=smollm2)
    views = [View(target.encode(text)) for text in ("a", "a b")]  # one sequence, in two rounds
    for view in views:
        propose(drafter, view, 2)
    assert [one is other for one, other in zip(seen, views, strict=True)] == [True, True]
