"""What a draft model keeps of sequences: what is found again, left out, given back, and lost with an error."""

import pytest
from helpers.drafting import View
from helpers.engines import make_engine, run, table_decoder

from foredraft.drafters.model import ModelDrafter
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel
from foredraft.tree import Budget, DraftTree

V = 40
MODEL = TableModel(2, V, seed=2)
WHOLE = TableModel(1000, V, seed=2)
"""What it says depends on all of the text, so nothing in the cache may be wrong."""


def one(drafter: ModelDrafter, view: View, budget: int | Budget) -> DraftTree:
    [tree] = drafter.propose([view], [Budget(budget) if isinstance(budget, int) else budget])
    return tree


def test_of_a_long_text_the_end_may_do() -> None:
    decoder, _ = table_decoder(MODEL, length=1024)
    drafter = ModelDrafter(decoder, vocab_size=V)
    view = View([(i * i) % V for i in range(700)])
    drafter.begin_late(view, 8)
    assert drafter.num_uncached_tokens(view) == 8
    tree = one(drafter, view, 3)
    assert tree.tokens[1:] == tuple(MODEL.generate(view.tokens, view.params, 3))  # it looks back on two tokens
    assert len(drafter._computed[view.id].tokens) == 8
    for accepted in (tree.tokens[1:3], ()):
        view.tokens.extend([*accepted, 5])
        drafter.begin_late(view, 2)  # too late to leave out more
        assert drafter.num_uncached_tokens(view) <= 1
        tree = one(drafter, view, 3)
        assert tree.tokens[1:] == tuple(MODEL.generate(view.tokens, view.params, 3))
        assert drafter._computed[view.id].tokens == list(view.tokens[691:-1])
    view.tokens.extend([1] * 50)
    drafter.begin_late(view, 2)
    assert drafter.num_uncached_tokens(view) >= 49  # it was asked before, and prefills all that came since
    drafter.begin_late(other := View(view.tokens[:5], id=1), 8)
    assert drafter.num_uncached_tokens(other) == 4  # all of a short one


def test_what_is_kept_of_earlier_sequences_need_not_be_prefilled() -> None:
    """Kind: of a conversation the end alone is prefilled, although nearly all of it was computed before."""
    decoder, _ = table_decoder(MODEL, length=1024)
    drafter = ModelDrafter(decoder, vocab_size=V)
    view = View([(i * i) % V for i in range(200)])
    one(drafter, view, 1)
    drafter.end(view.id)
    again = View([*view.tokens, 7, 8], id=1)
    assert drafter.num_uncached_tokens(again) < 20
    drafter.begin_late(again, 30)
    assert drafter._computed[again.id].num_left_out == 0
    drafter.end(again.id)
    longer = View([*view.tokens, *[7] * 100], id=2)
    drafter.begin_late(longer, 30)
    assert drafter._computed[longer.id].num_left_out == 269
    drafter.end(longer.id)
    assert decoder.cache.pool.num_used == 0  # what was kept is not held where it is left out


def test_a_text_that_becomes_shorter_than_what_was_left_out_is_prefilled_anew() -> None:
    """Kind: in a draft model's own tokens a text may shrink with the letters that follow."""
    decoder, _ = table_decoder(MODEL, length=1024)
    drafter = ModelDrafter(decoder, vocab_size=V)
    view = View([(i * i) % V for i in range(100)])
    drafter.begin_late(view, 1)
    one(drafter, view, 1)
    del view.tokens[95:]
    assert drafter.num_uncached_tokens(view) <= 94
    assert one(drafter, view, 2).tokens[1:] == tuple(MODEL.generate(view.tokens, view.params, 2))


def test_what_was_left_out_leaves_room_in_the_context() -> None:
    decoder, _ = table_decoder(MODEL, length=64)
    drafter = ModelDrafter(decoder, vocab_size=V)
    view = View([i % V for i in range(60)])
    drafter.begin_late(view, 10)
    for _ in range(50):
        view.tokens.append(3)
        assert one(drafter, view, 2).num_draft_tokens == 2
    for _ in range(10):
        view.tokens.append(3)
        one(drafter, view, 2)
    assert one(drafter, view, 2).num_draft_tokens == 0


def test_a_prompt_is_prefilled_in_pieces_on_demand() -> None:
    decoder, forward = table_decoder(WHOLE, length=1024)
    drafter = ModelDrafter(decoder, vocab_size=V)
    view = View([i % V for i in range(700)])  # longer than a chunk of the decoder
    for num_uncached in (699, 599, 499):
        assert drafter.num_uncached_tokens(view) == num_uncached
        drafter.prefill(view, 100)
    drafter.prefill(view, 10**6)
    assert drafter.num_uncached_tokens(view) == 0
    forward.num_passes = 0
    assert one(drafter, view, 3).tokens[1:] == tuple(WHOLE.generate(view.tokens, view.params, 3))
    assert forward.num_passes == 3
    fresh, _ = table_decoder(WHOLE, length=1024)  # and all at once, over all chunks
    assert one(ModelDrafter(fresh, vocab_size=V), view, 3).tokens[1:] == tuple(
        WHOLE.generate(view.tokens, view.params, 3)
    )


def test_a_prompt_that_was_computed_before_is_not_computed_again() -> None:
    """Kind: the target finds a prompt in its cache, the drafter starts from nothing."""
    decoder, forward = table_decoder(MODEL, length=512)
    drafter = ModelDrafter(decoder, vocab_size=V)
    prompt = [i * 7 % V for i in range(200)]
    first = one(drafter, View(prompt, id=1), 4)
    drafter.end(1)
    forward.num_passes = 0
    second = View(prompt, id=2)
    assert one(drafter, second, 4) == first
    assert forward.num_passes == 1 + 4  # what lies in the last, unfinished block is computed again
    assert len(forward.last_rows) == 1


def test_a_prefix_is_found_while_the_sequence_that_computed_it_goes_on() -> None:
    """Kind: several completions of a prompt each prefill it."""
    decoder, forward = table_decoder(WHOLE, length=512)
    drafter = ModelDrafter(decoder, vocab_size=V)
    prompt = [i * 7 % V for i in range(200)]
    views = [View(list(prompt), id=number, sample_index=number) for number in range(4)]
    computed: list[int] = []
    forward.before = lambda: computed.extend(forward.upcoming_rows)
    trees = drafter.propose(views, [Budget(3)] * 4)
    # The prompt once, for the others what lies in its last block, and the levels of the trees.
    assert len(computed) == 199 + 3 * (199 - 192) + 4 * 3
    for view, tree in zip(views, trees, strict=True):
        assert tree.tokens[1:] == tuple(WHOLE.generate(prompt, view.params, 3, sample_index=view.id))
    for view in views:
        drafter.end(view.id)
    assert decoder.cache.pool.num_used == 0
    decoder.cache.pool.check_integrity()
    drafter.reset_prefix_cache()
    assert drafter.num_uncached_tokens(View(prompt, id=9)) == 199


def test_a_pass_that_fails_leaves_what_was_computed_before_it() -> None:
    """Kind: tokens and blocks disagree after an error, and others are given what was never computed."""
    decoder, forward = table_decoder(WHOLE, length=1024)
    drafter, view = ModelDrafter(decoder, vocab_size=V), View([(i * i) % V for i in range(700)])

    def fail_in_the_second_chunk() -> None:
        if forward.num_passes == 2:
            raise RuntimeError("no more")

    forward.before = fail_in_the_second_chunk
    with pytest.raises(RuntimeError, match="no more"):
        drafter.prefill(view, 700)
    computed = drafter._computed[view.id]
    assert computed.tokens == view.tokens[: len(computed.blocks)]
    assert 0 < len(computed.tokens) < 699
    assert drafter.num_uncached_tokens(view) == 699 - len(computed.tokens)
    other = View([*view.tokens, 5], id=1)
    for again in (view, other):
        assert one(drafter, again, 3).tokens[1:] == tuple(WHOLE.generate(again.tokens, again.params, 3))
        drafter.end(again.id)
    decoder.cache.pool.check_integrity()
    # In the middle of a tree, too: the table checks that what a row sees is what was computed.
    longer = View([*view.tokens, 9, 8, 7], id=2)
    one(drafter, longer, 3)
    longer.tokens.extend([4, 4])
    forward.before = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        one(drafter, longer, 3)
    forward.before = lambda: None
    assert one(drafter, longer, 3).tokens[1:] == tuple(WHOLE.generate(longer.tokens, longer.params, 3))


@pytest.mark.parametrize("num_branches", [1, 3])
def test_a_full_cache_means_no_draft_and_holds_nothing(num_branches: int) -> None:
    """Kind: a draft model's cache is full, and the completion ends with an error, or its blocks are lost."""
    small, forward = table_decoder(WHOLE, length=200)
    decoder = CachedDecoder(small.config, forward, small.kernels, num_positions=128)
    pool = decoder.cache.pool
    drafter = ModelDrafter(decoder, vocab_size=V, num_branches=num_branches)
    one_, two, three = (View([(i * i + number) % V for i in range(40)], id=number) for number in range(3))
    trees = drafter.propose([one_, two, three], [Budget(6)] * 3)  # 3 blocks each, and there are 8
    assert [tree.num_draft_tokens for tree in trees] == [6, 6, 0]
    assert pool.num_used == 6  # what the third held was given back
    pool.check_integrity()
    assert drafter.num_uncached_tokens(three) == 39
    assert one(drafter, three, 6).num_draft_tokens == 0
    drafter.prefill(three, 100)
    assert pool.num_used == 6
    drafter.end(one_.id)
    tree = one(drafter, three, 6)
    assert tree.num_draft_tokens == 6
    if num_branches == 1:
        assert tree.tokens[1:] == tuple(WHOLE.generate(three.tokens, three.params, 6))
    # Where room is lacking for a tree alone, a sequence gives back what it has, and takes it up again later.
    for view in (two, three):
        view.tokens.extend([7] * 22)
    trees = drafter.propose([two, three], [Budget(6)] * 2)
    assert sorted(tree.num_draft_tokens for tree in trees) == [0, 6]
    assert pool.num_used == 5
    pool.check_integrity()
    for view in (two, three):
        drafter.end(view.id)
        drafter.end(view.id)
    assert pool.num_used == 0
    assert drafter.num_uncached_tokens(View([*two.tokens], id=7)) < 61  # it stays findable
    assert drafter.problem == ""


def test_a_prefix_that_was_seen_before_is_drafted_for_as_well_as_the_first_time() -> None:
    """Kind: the cache gives the target its prefix back, and the drafter starts in the middle of nowhere."""
    target, _ = table_decoder(MODEL, length=512)
    draft, _ = table_decoder(TableModel(2, V, seed=2, scale=1.2), length=512)
    engine = make_engine(target, ModelDrafter(draft, vocab_size=V))
    prompt = [i * 7 % V for i in range(200)]
    params = SamplingParams(max_tokens=60, temperature=0.7, seed=1, ignore_eos=True)
    [first], [second] = run(engine, [prompt], params), run(engine, [prompt], params)
    assert first.counts == second.counts
    assert first.counts.num_accepted_tokens > 20


def test_a_text_whose_end_was_written_anew_is_drafted_for_as_it_is_now() -> None:
    """Kind: a text of another vocabulary, whose last tokens change with what follows, is drafted on as it was."""
    decoder, _ = table_decoder(WHOLE)
    drafter, view = ModelDrafter(decoder, vocab_size=V), View(list(range(20)))
    one(drafter, view, 3)
    view.tokens[-3:] = [30, 31]
    assert drafter.num_uncached_tokens(view) == 1
    assert one(drafter, view, 3).tokens == (31, *WHOLE.generate(view.tokens, view.params, 3))


def test_a_text_that_changed_within_what_others_may_find_is_drafted_for_as_it_is_now() -> None:
    decoder, _ = table_decoder(WHOLE)
    drafter, view = ModelDrafter(decoder, vocab_size=V), View([i % V for i in range(50)])
    one(drafter, view, 3)
    before = list(view.tokens)
    view.tokens[20:] = [7, 8, 9]
    assert one(drafter, view, 3).tokens[1:] == tuple(WHOLE.generate(view.tokens, view.params, 3))
    other = View(before, id=1)
    assert drafter.num_uncached_tokens(other) == 1  # which finds what the first had computed
    assert one(drafter, other, 3).tokens[1:] == tuple(WHOLE.generate(before, other.params, 3))
    decoder.cache.pool.check_integrity()
