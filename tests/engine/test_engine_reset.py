"""Forgetting what is cached: of the target and of draft models."""

from helpers.engines import make_engine, run, table_decoder

from foredraft.drafters.model import ModelDrafter
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel

V = 40
MODEL = TableModel(2, V, seed=6)


def test_target_and_draft_models_forget_together() -> None:
    """Kind: a measurement begins with an empty cache of the target, and the draft model still knows the prompt."""
    target, _ = table_decoder(MODEL)
    draft, passes = table_decoder(MODEL)
    engine = make_engine(target, ModelDrafter(draft, vocab_size=V))
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    prompt = [*range(V)] * 2
    run(engine, [prompt], params)
    assert (target.cache.pool.num_kept > 0, draft.cache.pool.num_kept > 0) == (True, True)
    engine.reset_prefix_cache()
    assert (target.cache.pool.num_kept, draft.cache.pool.num_kept) == (0, 0)
    before = passes.num_passes
    [again] = run(engine, [prompt], params)
    assert again.sequence.num_cached_tokens == 0
    assert passes.num_passes > before
