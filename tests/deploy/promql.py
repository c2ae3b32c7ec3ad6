"""The metric names in PromQL expressions, as far as ours use the language."""

import re

_STRINGS = re.compile(r'"[^"]*"')
_GROUPINGS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_BRACES = re.compile(r"\{[^}]*\}|\[[^\]]*\]")
_NAME = re.compile(r"(?<![\w:$.])([a-zA-Z_:][\w:]*)(?!\s*\()(?![\w:])")
_WORDS = {"and", "or", "unless", "bool", "offset"}


def metric_names(expression: str) -> set[str]:
    """Names of the series that an expression selects; what follows a name in parentheses makes it a function."""
    for noise in (_STRINGS, _GROUPINGS, _BRACES):
        expression = noise.sub(" ", expression)
    return {name for name in _NAME.findall(expression) if name not in _WORDS}
