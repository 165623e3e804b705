"""Write office texts, and read the facts back from them."""
