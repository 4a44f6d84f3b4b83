"""Training: recipes, objectives, data and the loop."""
