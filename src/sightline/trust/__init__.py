"""How far words are to be trusted: the evidence, and the rules that weigh it. numpy only."""
