"""How long a newcomer waits for the first result of README's example."""
