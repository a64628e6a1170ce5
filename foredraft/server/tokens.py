"""POST /tokenize and /detokenize, as vLLM and llama.cpp have them."""

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foredraft.server.chat import Conversation
from foredraft.server.errors import ApiError
from foredraft.server.fields import Body, Count, Listed, Object
from foredraft.server.generation import Server
from foredraft.server.pool import ServedModel


class TokenizeRequest(Body):
    """A text, or a conversation. model: may be left out where there is one only. content: another name of prompt."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: Listed[Object] | None = None
    add_special_tokens: bool = True
    parse_special: bool = True
    return_token_strs: bool = False
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: Object | None = None
    tools: Listed[Object] | None = None

    def ids(self, model: ServedModel) -> list[int]:
        """The ids. Raises ApiError unless exactly one of the texts is given."""
        given = [value for value in (self.prompt, self.content, self.messages) if value is not None]
        if len(given) != 1:
            raise ApiError("give one of prompt and messages", param="prompt")
        tokenizer = model.llm.tokenizer
        if self.messages is None:
            text = self.prompt if self.prompt is not None else self.content or ""
            return tokenizer.encode(text, add_special=self.add_special_tokens, parse_special=self.parse_special)
        names = ("add_generation_prompt", "continue_final_message", "chat_template_kwargs")
        options = {name: value for name in names if (value := getattr(self, name)) is not None}
        asked = Conversation(model=model.name, messages=self.messages, sampling={}, tools=self.tools, options=options)
        return asked.encode(model)

    def answer(self, model: ServedModel) -> Response:
        """The ids, and how many there are. Raises as `ids` does."""
        ids = self.ids(model)
        found: Object = {"tokens": ids, "count": len(ids), "max_model_len": model.llm.context_length}
        if self.return_token_strs:
            found["token_strs"] = [model.llm.tokenizer.token_text(token) for token in ids]
        return JSONResponse(found)


class DetokenizeRequest(Body):
    """Ids. model: may be left out where there is one only."""

    model: str | None = None
    tokens: Listed[Count]

    def answer(self, model: ServedModel) -> Response:
        """The text of the ids."""
        tokenizer = model.llm.tokenizer
        text = tokenizer.decode(tokenizer.check_ids(self.tokens), skip_special=False)
        return JSONResponse({"prompt": text, "content": text})


async def tokenize(body: TokenizeRequest, request: Request) -> Response:
    """The ids of a text, or of a conversation as the model's template writes it."""
    server = Server.of(request)
    async with server.pool.use(_name(server, body.model)) as model:
        return await asyncio.to_thread(body.answer, model)


async def detokenize(body: DetokenizeRequest, request: Request) -> Response:
    """The text of ids, special tokens included."""
    server = Server.of(request)
    async with server.pool.use(_name(server, body.model)) as model:
        return await asyncio.to_thread(body.answer, model)


def _name(server: Server, name: str | None) -> str:
    if name is not None:
        return name
    if len(server.pool.names) > 1:
        raise ApiError(f"give the model: {', '.join(server.pool.names)}", param="model")
    return server.pool.names[0]
