"""Every row of every forward pass has the bits it has when the text is run one token at a time."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.engines import VOCAB_SIZE, native_kernels, table_decoder, tiny_decoder, tiny_file
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft import _native
from foredraft.cache import OutOfBlocksError, PagedCache
from foredraft.models import cached_decoder
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.models.load import load_decoder
from foredraft.testing import TableModel
from foredraft.tree import DraftTree

MODELS = [
    ("llama", "F32"),
    ("qwen2", "F16"),
    ("gemma3", "BF16"),
    ("qwen3", "Q4_0"),
    ("gemma3", "Q4_1"),
    ("qwen2", "Q5_0"),
    ("llama", "Q5_1"),
    ("gemma3", "Q8_0"),
    ("llama", "Q4_K"),
    ("qwen2", "Q5_K"),
    ("gemma3", "Q6_K"),
]
FAST_ISAS = [isa for isa in _native.available_kernels() if isa != "portable"] or ["portable"]
_decoders: dict[tuple[str, str, str, int], CachedDecoder] = {}


def decoder_of(family: str, format: str, isa: str, threads: int) -> CachedDecoder:
    key = (family, format, isa, threads)
    if key not in _decoders:
        _decoders[key] = tiny_decoder(family, format, isa=isa, threads=threads, length=1024)
    return _decoders[key]


class OneByOne:
    """The plain run: one token, one row, one sequence, nothing shared, one thread."""

    def __init__(self, decoder: CachedDecoder) -> None:
        self._decoder = decoder
        self._blocks = decoder.cache.open()
        self._known: list[int] = []

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits after `tokens`; what they share with the tokens asked before is not run again."""
        shared = 0
        while shared < min(len(self._known), len(tokens) - 1) and self._known[shared] == tokens[shared]:
            shared += 1
        self._blocks.truncate(shared)
        for token in tokens[shared:]:
            [row] = self._decoder.forward([Entry(self._blocks, DraftTree.chain(token))]).logits_NV
            self._blocks.advance(1)
        self._known = list(tokens)
        return np.array(row[0])

    def close(self) -> None:
        """Give the cache back. Nothing of it was published."""
        self._blocks.close()


class Text:
    """A sequence whose tokens are all computed."""

    def __init__(self, decoder: CachedDecoder, tokens: Sequence[int]) -> None:
        self._decoder = decoder
        self.tokens = list(tokens)
        self.blocks = decoder.cache.open()
        self.num_found = self.blocks.reuse([*tokens, 0])
        decoder.prefill(self.blocks, tokens[self.num_found :])

    def commit(self, tree: DraftTree, path: Sequence[int]) -> None:
        self._decoder.commit(self.blocks, tree, path)
        self.tokens += [tree.tokens[node] for node in (0, *path)]
        assert len(self.blocks) == len(self.tokens)

    def close(self) -> None:
        """What is computed may be found by others."""
        self.blocks.publish(self.tokens)
        self.blocks.close()


def random_tree(random: np.random.Generator, *, chain: bool) -> DraftTree:
    num_nodes = int(random.choice([1, 1, 2, 3, 5, 9, 17, 33]))
    # Tokens that all differ, so that no two children of a node are the same.
    tokens = random.permutation(VOCAB_SIZE)[:num_nodes].tolist()
    parents = [-1, *(node - 1 if chain else int(random.integers(node)) for node in range(1, num_nodes))]
    return DraftTree(tuple(tokens), tuple(parents))


def check_rows(cached: Sequence[int], entry: Entry, logits: np.ndarray, plain: OneByOne) -> None:
    tree = entry.tree
    nodes = range(tree.num_nodes) if entry.wanted == "all" else [tree.num_nodes - 1]
    assert len(logits) == (0 if entry.wanted == "none" else len(nodes))
    for row, node in zip(logits, nodes, strict=False):
        path = [tree.tokens[i] for i in (0, *tree.path(node))]
        np.testing.assert_array_equal(row.view(np.uint32), plain.logits([*cached, *path]).view(np.uint32))


def random_entries(random: np.random.Generator, texts: Sequence[Text]) -> list[tuple[Text, Entry]]:
    """One entry for some of the sequences: a tree to verify, or a chunk of a prompt."""
    chosen = [text for text in texts if random.random() < 0.8] or list(texts[:1])
    entries = []
    for text in chosen:
        if random.random() < 0.35:
            size = int(random.choice([1, 2, 7, 16, 31, 64]))
            root, *rest = random.integers(VOCAB_SIZE, size=size).tolist()
            wanted = random.choice(["none", "last", "all"])
            entries.append((text, Entry(text.blocks, DraftTree.chain(root, tuple(rest)), str(wanted))))
        else:
            entries.append((text, Entry(text.blocks, random_tree(random, chain=bool(random.random() < 0.4)))))
    return entries


def run_in_parts(decoder: CachedDecoder, entries: Sequence[Entry], random: np.random.Generator) -> list[np.ndarray]:
    """The logits of each entry, the first nodes of some trees run in a pass before that of the others."""
    num_first = [int(random.integers(e.tree.num_nodes)) if e.wanted == "all" else 0 for e in entries]
    first = [
        Entry(entry.blocks, entry.tree.restricted(range(number)))
        for entry, number in zip(entries, num_first, strict=True)
        if number
    ]
    early = iter([np.array(logits) for logits in decoder.forward(first).logits_NV] if first else [])
    late = decoder.forward([replace(e, num_ready=number) for e, number in zip(entries, num_first, strict=True)])
    return [
        np.concatenate([next(early), logits]) if number else np.array(logits)
        for logits, number in zip(late.logits_NV, num_first, strict=True)
    ]


def check_scenario(decoder: CachedDecoder, one: CachedDecoder, seed: int) -> None:
    """Up to eight sequences, three passes; after each a random branch of every tree is committed."""
    random = np.random.default_rng(seed)
    shared = list(range(70))  # the same in every example, so that later ones find it in the cache
    texts, plain = [], {}
    for _ in range(int(random.choice([1, 1, 2, 3, 8]))):
        own = random.integers(VOCAB_SIZE, size=random.integers(20)).tolist()
        text = Text(decoder, [*shared[: random.integers(71)], *own])
        texts.append(text)
        plain[text] = OneByOne(one)
    for _ in range(3):
        entries = random_entries(random, texts)
        rows = run_in_parts(decoder, [entry for _, entry in entries], random)
        for (text, entry), logits in zip(entries, rows, strict=True):
            check_rows(text.tokens, entry, logits, plain[text])
            tree = entry.tree
            node = tree.num_nodes - 1 if entry.wanted != "all" else int(random.integers(tree.num_nodes))
            text.commit(tree, tree.path(node))
    for text in texts:
        plain[text].close()
        text.close()
    for pool in (decoder.cache.pool, one.cache.pool):
        assert pool.num_used == 0
        pool.check_integrity()


@pytest.mark.parametrize("isa", FAST_ISAS)
@pytest.mark.parametrize(("family", "format"), MODELS)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_have_the_bits_of_the_plain_run(family: str, format: str, isa: str, seed: int) -> None:
    """Kind: a row's numbers depend on the width of the pass, its neighbours, the tree, the chunk or a cache hit."""
    check_seed(family, format, isa, seed)


@pytest.mark.parametrize(("family", "format"), MODELS)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_of_the_portable_kernels(family: str, format: str, seed: int) -> None:
    check_seed(family, format, "portable", seed)


@pytest.mark.parametrize("heads", [(7, 1, 16), (6, 2, 32), (4, 4, 48), (9, 3, 64), (8, 1, 128), (3, 3, 24), (5, 1, 8)])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_of_other_shapes(family: str, heads: tuple[int, int, int], seed: int) -> None:
    """Kind: tiles of queries are cut differently for other numbers and widths of heads."""
    num_heads, num_kv_heads, head_width = heads
    key = (family, str(heads), "", 1 + seed % 2)
    if key not in _decoders:
        path = tiny_file(
            family, num_heads=num_heads, num_kv_heads=num_kv_heads, head_width=head_width, context_length=1024
        )
        for threads in (1, 2):
            _decoders[*key[:3], threads] = load_decoder(path, kernels=native_kernels(threads))
    try:
        check_scenario(_decoders[key], _decoders[*key[:3], 1], seed)
    except BaseException:
        _decoders.clear()
        raise


def check_seed(family: str, format: str, isa: str, seed: int) -> None:
    threads = 1 + seed % 2
    try:
        check_scenario(decoder_of(family, format, isa, threads), decoder_of(family, format, isa, 1), seed)
    except BaseException:
        _decoders.clear()  # what a failed example left behind must not fail the next one
        raise


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_chunks_of_a_prompt_do_not_matter(family: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a long prompt, in chunks, gives other numbers than in one go."""
    tokens = np.random.default_rng(5).integers(VOCAB_SIZE, size=530).tolist()
    decoder = tiny_decoder(family, "Q4_0", length=1024)
    whole = decoder.logits(tokens)
    monkeypatch.setattr(cached_decoder, "CHUNK_TOKENS", chunk)
    text = Text(decoder, tokens[:-8])
    assert text.num_found == 0  # `logits` left nothing to be found
    for num_rows in (1, 3, 4):
        begin = len(text.blocks)
        part = tokens[begin : begin + num_rows]
        tree = DraftTree.chain(part[0], tuple(part[1:]))
        [rows] = decoder.forward([Entry(text.blocks, tree)]).logits_NV
        np.testing.assert_array_equal(rows.view(np.uint32), whole[begin : begin + num_rows].view(np.uint32))
        text.commit(tree, range(1, num_rows))


def test_prefix_hits_do_not_matter() -> None:
    """Kind: what is taken over from the cache of an earlier sequence is not what would be computed."""
    decoder = tiny_decoder("qwen2", "Q8_0")
    tokens = np.random.default_rng(6).integers(VOCAB_SIZE, size=100).tolist()
    rows = []
    for hit in (0, 96):
        text = Text(decoder, tokens[:-1])
        assert text.num_found == hit
        [row] = decoder.forward([Entry(text.blocks, DraftTree.chain(tokens[-1]))]).logits_NV
        rows.append(np.array(row).view(np.uint32))
        text.close()
    np.testing.assert_array_equal(rows[0], rows[1])


@pytest.mark.parametrize("isa", FAST_ISAS)
def test_rows_of_the_real_model(smollm2_path: object, isa: str) -> None:
    decoder = load_decoder(str(smollm2_path), kernels=native_kernels(2, isa))
    random = np.random.default_rng(7)
    plain = OneByOne(decoder)
    prompts = [random.integers(1000, 40000, size=n).tolist() for n in (1, 13, 30)]
    trees = [
        DraftTree.chain(5, (6, 7, 8)),
        DraftTree((5, 6, 7, 8, 9, 10), (-1, 0, 0, 1, 2, 2)),
        DraftTree.chain(11),
    ]
    texts = [Text(decoder, prompt) for prompt in prompts]
    entries = [Entry(text.blocks, tree) for text, tree in zip(texts, trees, strict=True)]
    found = [np.array(logits) for logits in decoder.forward(entries).logits_NV]
    for text, entry, logits in zip(texts, entries, found, strict=True):
        check_rows(text.tokens, entry, logits, plain)


def test_a_failed_pass_leaves_the_cache_as_it_was() -> None:
    decoder = tiny_decoder()
    tokens = list(range(40))
    whole = decoder.logits(tokens)
    with pytest.raises(ValueError, match="outside the vocabulary"):
        decoder.logits([1, 2, 100_000])
    assert decoder.cache.pool.num_used == 0
    np.testing.assert_array_equal(decoder.logits(tokens), whole)


def test_a_pass_that_does_not_fit_into_the_cache_computes_nothing() -> None:
    """Kind: half of a pass is computed, and what it wrote lies in blocks of others."""
    decoder = tiny_decoder()
    decoder.resize_cache(64)
    assert decoder.cache.num_positions == 64
    first, second = Text(decoder, range(40)), decoder.cache.open()
    before = decoder.cache.storage.keys.copy(), decoder.cache.storage.values.copy()
    entries = [Entry(first.blocks, DraftTree.chain(5)), Entry(second, DraftTree.chain(1, tuple(range(20))))]
    with pytest.raises(OutOfBlocksError):
        decoder.forward(entries)
    np.testing.assert_array_equal(decoder.cache.storage.keys, before[0])
    np.testing.assert_array_equal(decoder.cache.storage.values, before[1])
    second.close()
    [rows] = decoder.forward(entries[:1]).logits_NV
    np.testing.assert_array_equal(rows[0], tiny_decoder().logits([*range(40), 5])[-1])


def test_a_cache_that_no_machine_has_room_for_changes_nothing() -> None:
    decoder = tiny_decoder()
    with pytest.raises(MemoryError):
        decoder.resize_cache(10**15)
    np.testing.assert_array_equal(decoder.logits([1, 2, 3]), tiny_decoder().logits([1, 2, 3]))


def test_a_measurement_leaves_nothing_to_be_found() -> None:
    """Kind: the keys of what was never computed are served to a prompt that begins with the same tokens."""
    decoder = tiny_decoder()
    assert decoder.time_forward(num_tokens=3, context=64) > 0
    assert Text(decoder, range(64)).num_found == 0
    assert decoder.cache.pool.num_kept == 0


def test_the_reference_agrees() -> None:
    """The plain implementation and the fast one compute the same model."""
    for family in ("llama", "qwen2", "qwen3", "gemma3"):
        tokens = np.random.default_rng(8).integers(VOCAB_SIZE, size=50).tolist()
        expected = load_decoder(tiny_file(family), kernels="reference").logits(tokens)
        found = tiny_decoder(family).logits(tokens)
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert error < 5e-3, family


@pytest.mark.parametrize(
    ("family", "format"), [("llama", "F32"), ("qwen2", "F16"), ("qwen3", "Q4_0"), ("gemma3", "BF16")]
)
def test_rows_of_the_reference_kernels(family: str, format: str) -> None:
    """Kind: NumPy's product of matrices adds up in another order for another number of rows."""
    decoder = load_decoder(tiny_file(family, format, context_length=1024), kernels="reference")
    tokens = [(7 * i) % VOCAB_SIZE for i in range(40)]
    plain = OneByOne(decoder)
    for num_tokens, row in enumerate(decoder.logits(tokens), start=1):
        np.testing.assert_array_equal(row.view(np.uint32), plain.logits(tokens[:num_tokens]).view(np.uint32))
    plain.close()


def test_a_cache_that_nobody_said_the_size_of_is_made_smaller_where_memory_is_scarce(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kind: a model for long contexts cannot be loaded at all, whatever size its cache is to have in the end."""
    make = CachedDecoder._new_cache

    def scarce(decoder: CachedDecoder, num_positions: int) -> PagedCache:
        if num_positions > most:
            raise MemoryError
        return make(decoder, min(num_positions, 64))

    monkeypatch.setattr(CachedDecoder, "_new_cache", scarce)
    most = 20_000
    table_decoder(TableModel(1, 40, seed=1), length=1_000_000)
    most = 1000
    with pytest.raises(MemoryError):
        table_decoder(TableModel(1, 40, seed=1), length=1_000_000)
