"""What the models of a bundle say about the words of a sentence, and their places in a photo."""
