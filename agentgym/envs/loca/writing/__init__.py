"""Generate office documents, and parse the facts in them."""
