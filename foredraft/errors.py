"""Every error foredraft raises on purpose.

A `UserError` means that the input is at fault: its message is one line that says what is wrong and what to do,
and the command line prints just that line and exits with code 2. Anything else that escapes is a fault of ours
(exit code 1).
"""


class ForedraftError(Exception):
    """Base of all errors raised by foredraft."""


class UserError(ForedraftError):
    """The user's input cannot be used as it stands."""


class ModelFileError(UserError):
    """A model file or folder is missing, damaged or inconsistent."""


class UnsupportedModelError(UserError):
    """A sound model of a kind that foredraft cannot run (architecture, quantisation, tokenizer)."""


class OptionError(UserError):
    """An option has a value outside its range, or cannot be combined with another."""


class ContextLengthError(UserError):
    """A prompt does not fit into the context of the model."""


class DownloadError(UserError):
    """A model could not be fetched whole."""
