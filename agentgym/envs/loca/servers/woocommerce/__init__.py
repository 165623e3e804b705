"""WooCommerce, an online shop."""
