"""Fields that requests of several APIs have in common: sampling, drafting, the form of the answer."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from foredraft.sampling.params import MAX_CHOICES, MAX_LOGPROBS
from foredraft.server.errors import ApiError
from foredraft.server.pool import Drafting

Seed = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]
Count = Annotated[int, Field(ge=0, le=2**31)]
Positive = Annotated[int, Field(ge=1, le=2**31)]
T = TypeVar("T")
Listed = Annotated[list[T], Field(fail_fast=True)]
"""A list of which only the first wrong element is reported: reports of a million of them take minutes."""
Texts = str | Listed[str]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
Object = dict[str, Any]


def _numbers(value: Object) -> Object:
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in value.values()):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    return value


def _texts(value: Object) -> Object:
    if not all(isinstance(one, str) for one in value.values()):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    return value


NumberObject = Annotated[Object, AfterValidator(_numbers)]
TextObject = Annotated[Object, AfterValidator(_texts)]
"""Objects of one type of value. Of `dict[str, float]`, pydantic would report every wrong value."""


class Body(BaseModel):
    """A part of a request. Fields it does not know are refused, lest a request be half done."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, given: Any) -> Any:
        """Of the fields that are not known, only the first is to be reported, as of the elements of lists."""
        if not isinstance(given, dict):
            return given
        known = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = next((name for name in given if name not in known), None)
        return {name: value for name, value in given.items() if name in known or name == unknown}


class DraftFields(Body):
    """How is drafted for this request, where it is not to be as the server does. The text never depends on it, but for
    a lossy rule of acceptance."""

    draft: Texts | None = None
    num_speculative_tokens: int | None = Field(None, ge=1, le=64)
    acceptance: str | None = None

    def drafting(self) -> Drafting:
        """As one value."""
        draft = tuple(self.draft) if isinstance(self.draft, list) else self.draft
        return Drafting(draft=draft, num_speculative_tokens=self.num_speculative_tokens, acceptance=self.acceptance)


class SamplingFields(DraftFields):
    """Fields with the names and meanings of `SamplingParams`: those of OpenAI, and those that vLLM adds to them."""

    temperature: float | None = Field(None, ge=0)
    top_p: Share | None = None
    top_k: int | None = Field(None, ge=-1, le=2**31)
    min_p: Share | None = None
    typical_p: Share | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(None, gt=0)
    dry_multiplier: float | None = Field(None, ge=0)
    dry_base: float | None = Field(None, ge=1)
    dry_allowed_length: Positive | None = None
    dry_sequence_breakers: Listed[str] | None = None
    logit_bias: NumberObject | None = None
    bad_words: Listed[str] | None = None
    min_tokens: Count | None = None
    stop: Texts | None = None
    stop_token_ids: Listed[Count] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    regex: str | None = None
    grammar: str | None = None

    def sampling(self) -> Object:
        """What is given, as keywords of `SamplingParams`."""
        names = [name for name in SamplingFields.model_fields if name not in DraftFields.model_fields]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class JsonSchema(Body):
    """A schema with a name, as OpenAI has it; name, description and strict change nothing: it is always kept to."""

    name: str | None = None
    description: str | None = None
    schema_: Object | bool | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def sampling(self) -> Object:
        """As keywords of `SamplingParams`. Raises ApiError where the schema is missing, or is not asked for."""
        if self.type != "json_schema":
            if self.json_schema is not None:
                raise ApiError(f"response_format of type {self.type} takes no json_schema", param="response_format")
            return {"json_object": True} if self.type == "json_object" else {}
        if self.json_schema is None or self.json_schema.schema_ is None:
            raise ApiError('response_format needs "json_schema" with a "schema"', param="response_format")
        return {"json_schema": self.json_schema.schema_}


class StreamOptions(Body):
    """What a stream tells besides its text.

    include_usage: a last chunk with the numbers of tokens. token_by_token: a chunk for each token, also where several
    of them come at once. include_obfuscation: of no effect, as nothing is obfuscated.
    """

    include_usage: bool | None = None
    token_by_token: bool | None = None
    include_obfuscation: bool | None = None


class Ignored(Body):
    """Fields of OpenAI's requests that mean nothing here, and that clients send: who is asking, where it is stored,
    what it may cost."""

    user: str | None = None
    metadata: Object | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Object | None = None


Logprobs = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]
