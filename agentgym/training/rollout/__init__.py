"""Playing episodes: policies, local models, the collector with its engines, episodes, trajectories and their log."""
