"""Foreign text, made fit to be kept and shown."""


def legible(text: str, limit: int | None = 300) -> str:
    """Foreign text cut to `limit` characters, without those that a database, a log or a terminal cannot take."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text[:limit])
