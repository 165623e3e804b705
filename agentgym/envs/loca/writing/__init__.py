"""Generate office texts, and parse the facts in these texts."""
