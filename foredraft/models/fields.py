"""Typed access to the keys of GGUF metadata or of a config.json, with one clear line when one is wrong."""

from collections.abc import Mapping

from foredraft.errors import ModelFileError

_MISSING = object()


class Fields:
    """Keys of one mapping; `where` names file and place in messages, `prefix` stands before each key.

    A key whose value is None (JSON null) counts as missing. All methods raise ModelFileError.
    """

    def __init__(self, values: Mapping[str, object], where: str, prefix: str = "") -> None:
        self.values = values
        self.where = where
        self.prefix = prefix

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return self.values.get(self.prefix + key) is not None

    def get(self, key: str, default: object = _MISSING) -> object:
        """The value as it stands."""
        value = self.values.get(self.prefix + key)
        if value is not None:
            return value
        if default is _MISSING:
            raise ModelFileError(f"{self.where}: key '{self.prefix}{key}' is missing")
        return default

    def wrong(self, key: str, value: object, wanted: str) -> ModelFileError:
        """The error for a value that is not what is wanted."""
        shown = ascii(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return ModelFileError(f"{self.where}: key '{self.prefix}{key}' must be {wanted}, it is {shown}")

    def integer(self, key: str, default: object = _MISSING, *, low: int = 1, high: int = 1 << 31) -> int:
        """A whole number between `low` and `high`, both included."""
        value = self.get(key, default)
        if isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]  # GGUF allows one value a layer; equal ones are one value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, value, f"a whole number from {low} to {high}")
        return value

    def number(
        self,
        key: str,
        default: object = _MISSING,
        *,
        low: float = 0.0,
        high: float = 1e30,
        positive: bool = True,
    ) -> float:
        """A number up to `high`, and above `low` or, when not `positive`, at least `low`."""
        value = self.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high  # not true of NaN either
            or (positive and value == low)
        ):
            raise self.wrong(key, value, f"a number {'above' if positive else 'from'} {low:g} up to {high:g}")
        return float(value)

    def flag(self, key: str, default: object = _MISSING) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: object = _MISSING) -> str:
        """A string."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, value, "a text")
        return value
