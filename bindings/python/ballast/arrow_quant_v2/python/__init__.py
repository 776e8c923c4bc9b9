"""Where ArrowQuant V2 has its loader."""
