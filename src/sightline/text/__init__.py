"""Words: tokenizer, vocabulary, part-of-speech tags, lemmas, synonyms."""
