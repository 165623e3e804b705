"""Generated office texts, and the parsers that recover their facts."""
