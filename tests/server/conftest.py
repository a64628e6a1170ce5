"""One server for most tests: SmolLM2, and the same weights again with a chat template that knows tools."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.serving import HERMES, Running, serving, spec

from foredraft.llm import LLM
from foredraft.server import ModelPool


@pytest.fixture(scope="session")
def served_llm(smollm2_path: Path) -> Iterator[LLM]:
    """The model of the server, to run requests solo on."""
    with LLM(smollm2_path, draft_memory="none", max_running=8, kv_memory="512M") as llm:
        yield llm


@pytest.fixture(scope="session")
def server(served_llm: LLM) -> Iterator[Running]:
    """See `Running`."""
    tools = served_llm.with_drafts("auto", draft_memory="none")
    pool = ModelPool([spec("smollm2-135m", served_llm), spec("tools", tools, chat_template=HERMES)])
    pool.load_first()
    with serving(pool) as running:
        yield running
