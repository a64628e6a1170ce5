"""An engine whose target and draft model are tables, with caches that notice wrong contents; and what it must say."""

from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.engine import Engine
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel
from helpers.engines import TableForward, make_engine, output, run, table_decoder

V = 40
MODEL = TableModel(2, V, seed=6)
DRAFT = TableModel(2, V, seed=6, scale=1.3)
PROMPTS = [list(range(35)), [5, 6, 7], [*range(20), 3]]
PARAMS = SamplingParams(max_tokens=24, temperature=0.7, seed=9, ignore_eos=True)


def engine_with_models(
    *, max_batched_tokens: int = 256, supervised: bool = False
) -> tuple[Engine, TableForward, list[CachedDecoder]]:
    """Target, lookup and a draft model, all with caches that notice wrong contents."""
    target, forward = table_decoder(MODEL)
    draft, _ = table_decoder(DRAFT)
    model = ModelDrafter(draft, vocab_size=V)
    drafter = FallbackDrafter([LookupDrafter(), SupervisedDrafter(model) if supervised else model])
    return make_engine(target, drafter, max_batched_tokens=max_batched_tokens), forward, [target, draft]


EXPECTED = [MODEL.generate(prompt, PARAMS, 24) for prompt in PROMPTS]


def check_usable(engine: Engine, decoders: list[CachedDecoder]) -> None:
    assert not engine.has_work
    assert [decoder.cache.pool.num_used for decoder in decoders] == [0] * len(decoders)
    # Twice: the second time whatever was published is taken over.
    for _ in range(2):
        assert [output(one) for one in run(engine, PROMPTS, PARAMS)] == EXPECTED
    assert [decoder.cache.pool.num_used for decoder in decoders] == [0] * len(decoders)
