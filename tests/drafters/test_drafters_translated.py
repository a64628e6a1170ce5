"""A draft model with other tokens than the target: what it is asked, what is proposed, and that nothing is lost."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny
from helpers.drafting import View
from helpers.engines import make_engine, native_kernels, result, run, tiny_decoder, tiny_file, tiny_tokenizer
from helpers.renaming import renamed, translated

from foredraft import LLM, SamplingParams
from foredraft.drafters import DraftOptions, make_drafters
from foredraft.drafters.base import Outcome, RequestView
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.translated import TranslatedDrafter, names_of_tokens, original
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.text import Tokenizer, load_tokenizer
from foredraft.tree import Budget, DraftTree

TEXT = "The cat sat on the mat, and the dog, too. " * 3
CHAT = "Write a Python function that adds two numbers, with a docstring."


class Saying:
    """Drafts the tokens of a text, whatever was said before; notes the tokens it was shown."""

    name, free, problem = "saying", False, ""

    def __init__(self, tokens: Sequence[int], confidence: Sequence[float] | None = None) -> None:
        self._tokens, self._confidence = tuple(tokens), tuple(confidence or [0.5] * len(tokens))
        self.shown: list[int] = []
        self.forgotten: list[int] = []
        self.num_read = self.num_read_at_end = 0

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self.shown = [*requests[0].tokens] if requests else []
        return [
            DraftTree.chain(r.tokens[-1], self._tokens[: b.num_tokens], self._confidence[: b.num_tokens])
            for r, b in zip(requests, budgets, strict=True)
        ]

    def num_unread(self, request: RequestView) -> int:
        return len(request.tokens)

    def read(self, request: RequestView, num_tokens: int) -> None:
        self.num_read += num_tokens

    def read_only_end(self, request: RequestView, num_tokens: int) -> None:
        self.num_read_at_end = num_tokens

    def time_step(self, *, num_tokens: int, context: int) -> float:
        return 0.5

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        raise AssertionError("a translated drafter is not told of the target's tokens")

    def forget(self, request_id: int) -> None:
        self.forgotten.append(request_id)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return load_tokenizer(open_model(smollm2_path).tokenizer_data)


def propose(drafter: TranslatedDrafter, view: View, budget: int) -> DraftTree:
    [tree] = drafter.propose([view], [Budget(budget)])
    return tree


def test_drafted_text_is_proposed_in_the_targets_tokens(smollm2: Tokenizer) -> None:
    """One token of the drafter may be several of the target, or the other way round."""
    target, text = tiny_tokenizer(), "and the then"
    own = smollm2.encode(text, add_special=False)
    expected = target.encode(text, add_special=False)
    assert len(expected) > len(own)
    view = View(target.encode(TEXT))
    drafter = TranslatedDrafter(Saying(own, [0.9] * len(own)), target=target, own=smollm2)
    tree = propose(drafter, view, 64)
    assert tree.tokens == (view.tokens[-1], *expected[:-1])  # the last may become another with what follows
    assert tree.is_chain
    assert set(tree.confidence[1:]) == {0.9, 1.0}
    few = propose(drafter, view, 2).tokens
    assert few == tree.tokens[: len(few)]
    assert len(few) == 3
    assert propose(drafter, view, 0).num_draft_tokens == 0
    both = [*own, *smollm2.encode(" a", add_special=False), *smollm2.encode(",", add_special=False)]
    shared = propose(TranslatedDrafter(Saying(both), target=target, own=smollm2), view, 64)
    assert target.token_bytes(shared.tokens[-1]) == b","  # which both vocabularies have
    back = TranslatedDrafter(Saying(expected, [0.9] * len(expected)), target=smollm2, own=target)
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
    drafter = TranslatedDrafter(saying, target=target, own=smollm2)
    view = View(target.encode(TEXT))
    for more in ("", " then", " a", "n", " emoji 😀", "\n\n", "  and"):
        view.tokens.extend(target.encode(more))
        tree = propose(drafter, view, 2)
        assert tree.tokens[0] == view.tokens[-1]
        assert b"".join(smollm2.token_bytes(t) for t in saying.shown) == b"".join(map(target.token_bytes, view.tokens))
    assert drafter.num_unread(view) == len(saying.shown)
    drafter.read(view, 7)
    assert saying.num_read == 7
    drafter.read_only_end(view, 5)
    assert saying.num_read_at_end == 5
    assert drafter.time_step(num_tokens=1, context=1) == 0.5
    drafter.forget(view.id)
    assert saying.forgotten == [view.id]


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
    drafter = TranslatedDrafter(Saying([*halves, *pieces]), target=target, own=smollm2)
    tree = propose(drafter, view, 16)
    drafted = b"".join(map(target.token_bytes, tree.tokens[1:]))
    assert rest.startswith(drafted)
    assert tree.tokens[1:3] == tuple(emoji[2:])


def test_an_end_of_the_drafter_is_an_end_of_the_target(smollm2: Tokenizer) -> None:
    target = tiny_tokenizer()
    own = [*smollm2.encode(" the end.", add_special=False), smollm2.encode("<|im_end|>", parse_special=True)[0]]
    tree = propose(TranslatedDrafter(Saying(own), target=target, own=smollm2), View(target.encode(TEXT)), 64)
    expected = target.encode(" the end.", add_special=False)
    assert tree.tokens[1:-1] == tuple(expected)  # nothing is left out: nothing can follow
    assert tree.tokens[-1] in target.eos_ids
    unknown = [token for token in smollm2.special_ids if smollm2.token_text(token) == "<jupyter_start>"]
    tree = propose(
        TranslatedDrafter(Saying([*own[:-1], *unknown, *own]), target=target, own=smollm2),
        View(target.encode(TEXT)),
        64,
    )
    assert tree.tokens[1:] == tuple(expected)


def test_branches_stay_branches(smollm2: Tokenizer) -> None:
    target = tiny_tokenizer()
    a, b, c = (smollm2.encode(text, add_special=False)[0] for text in (" a", " b", " c"))

    class Branching(Saying):
        def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
            return [DraftTree((r.tokens[-1], a, b, c, c), (-1, 0, 0, 1, 2), (1, 0.6, 0.3, 0.5, 0.4)) for r in requests]

    tree = propose(TranslatedDrafter(Branching([]), target=target, own=smollm2), View(target.encode(TEXT)), 64)
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
    """Kind: positions of one text used for the other. Nothing of it reaches the answer."""
    prompts = [TEXT, "a b c d a b", "😀 emoji 😀"]
    options = {"repetition_penalty": 1.3, "logit_bias": {5: -2.0}} if temperature else {}
    params = [
        SamplingParams(max_tokens=20, temperature=temperature, seed=i, ignore_eos=True, **options) for i in range(3)
    ]
    for target, draft in [(tiny_file(), smollm2_path), (smollm2_path, tiny_file())]:
        decoder = load_decoder(target, kernels=native_kernels())
        tokenizer = load_tokenizer(open_model(target).tokenizer_data)
        ids = [tokenizer.encode(prompt) for prompt in prompts]
        [drafter] = make_drafters([str(draft)], DraftOptions(tokenizer, decoder.kernels, num_branches=num_branches))
        assert isinstance(drafter, TranslatedDrafter)
        plain = [result(r) for r in run(make_engine(decoder, tokenizer=tokenizer), ids, params)]
        done = run(make_engine(decoder, drafter, tokenizer=tokenizer), ids, params)
        assert [result(request) for request in done] == plain
        assert sum(request.counts.num_draft_tokens for request in done) > 0
        assert drafter._requests == {}


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
    [drafter] = make_drafters([str(other)], DraftOptions(tiny_tokenizer(), decoder.kernels))
    assert isinstance(drafter, TranslatedDrafter)
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


def test_a_request_is_seen_as_it_is_now(smollm2: Tokenizer) -> None:
    """Kind: noise and options are those of the round in which a request was first seen."""
    target = tiny_tokenizer()
    seen: list[object] = []

    class Looking(Saying):
        def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
            seen.extend(map(original, requests))
            return super().propose(requests, budgets)

    drafter = TranslatedDrafter(Looking([]), target=target, own=smollm2)
    views = [View(target.encode(text)) for text in ("a", "a b")]  # one request, in two rounds
    for view in views:
        propose(drafter, view, 2)
    assert [one is other for one, other in zip(seen, views, strict=True)] == [True, True]
