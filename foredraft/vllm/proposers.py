"""Our drafters that need nothing but texts, as classes that vLLM takes for `"method": "custom_class"`.

    --speculative-config '{"method": "custom_class", "model": "foredraft.vllm.proposers.Suffix",
                           "num_speculative_tokens": 8}'

vLLM imports the class and makes one object of it in each of its workers. The interface is that of vLLM 0.32 (there in
`vllm/v1/spec_decode/custom_class_proposer.py`), which calls it experimental. Nothing of vLLM is imported here.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from foredraft.drafters import Drafter, drafter_of_text, drafter_of_texts
from foredraft.tree import Budget
from foredraft.vllm.texts import Row, Texts

LEAST = 0.1
"""A token that is less likely than this to be accepted, as far as the drafter knows, is not proposed."""


class _SpeculativeConfig(Protocol):
    @property
    def num_speculative_tokens(self) -> int: ...


class _ModelConfig(Protocol):
    @property
    def max_model_len(self) -> int: ...


class VllmConfig(Protocol):
    """What is read of vLLM's configuration."""

    @property
    def speculative_config(self) -> _SpeculativeConfig:
        """Of it the number of tokens to draft."""

    @property
    def model_config(self) -> _ModelConfig:
        """Of it the most tokens of a sequence."""


class _Proposer:
    """A drafter behind vLLM's interface.

    It proposes chains: vLLM verifies nothing else. In a model that is spread over several workers each of them has a
    proposer, and all propose the same, since all are told the same.
    """

    def __init__(self, vllm_config: VllmConfig, drafter: Drafter | None) -> None:
        assert drafter is not None
        self._drafter = drafter
        self._num_tokens = vllm_config.speculative_config.num_speculative_tokens
        self._max_length = vllm_config.model_config.max_model_len
        self._texts = Texts(max_length=self._max_length)

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: Sequence[int],
        token_ids_cpu: Sequence[Row],
        slot_mappings: object = None,
    ) -> list[list[int]]:
        """For each row of the batch the tokens to verify behind its last one, none for a prompt in the middle.

        sampled_token_ids: those just chosen, empty in the middle of a prompt. num_tokens_no_spec: of each row with
        these. token_ids_cpu: the tokens of each row.
        """
        rows, budgets = [], []
        for number, chosen in enumerate(sampled_token_ids):
            size = int(num_tokens_no_spec[number])
            budget = min(self._num_tokens, self._max_length - size - 1)  # behind a draft there is one more token
            if len(chosen) and budget > 0:
                rows.append((number, token_ids_cpu[number][:size], len(chosen)))
                budgets.append(Budget(num_tokens=budget, least=LEAST))
        texts = self._texts.of_rows(rows)
        for over in self._texts.ended():  # before others draft, who may draft from them
            self._drafter.end(over.id)
        trees = self._drafter.propose(texts, budgets)
        drafts: list[list[int]] = [[] for _ in sampled_token_ids]
        for (number, _, _), tree in zip(rows, trees, strict=True):
            drafts[number] = list(tree.first_chain().tokens[1:])
        return drafts

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Called by vLLM; there is no model to load."""


class Lookup(_Proposer):
    """Copies what followed the last few tokens earlier in the same sequence."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        super().__init__(vllm_config, drafter_of_text("lookup"))


class Suffix(_Proposer):
    """What followed the longest earlier matches, in the same sequence and in those that are over."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        super().__init__(vllm_config, drafter_of_texts("suffix"))


class SuffixAlone(_Proposer):
    """The same, from the sequence's own text only: nothing of a text shows in the speed of another one."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        super().__init__(vllm_config, drafter_of_text("suffix"))
