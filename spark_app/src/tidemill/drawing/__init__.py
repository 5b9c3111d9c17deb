"""Pictures of graphs for people: boxes in layers with arrows between them, as SVG; knows nothing of what is drawn."""
