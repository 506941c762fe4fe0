"""What is asked of a system: its fields and parameters, and the same question from Python."""

from gapless.question.question import Asked, asked, fields_of, from_question, picked, said

__all__ = ["Asked", "asked", "fields_of", "from_question", "picked", "said"]
