"""Learning: recipes, objectives and the loop."""
