"""The package that has the loader in ArrowQuant V2."""
