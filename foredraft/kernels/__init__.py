"""The operations a model is computed with, and the number formats of its weights."""
