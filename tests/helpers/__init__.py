"""What tests of several packages share: `from helpers.tiny import TinyModel`."""
