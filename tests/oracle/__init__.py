"""Logits compared with those of another implementation (transformers)."""
