"""Model files: where they come from, what they hold, and the decoder they fill."""
