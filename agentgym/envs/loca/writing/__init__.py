"""Generated office texts and the readers that recover their facts."""
