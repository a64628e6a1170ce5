"""Finding out what pays on a machine and on one's prompts: by measuring, and by playing recorded rounds again."""
