"""Programs around the product: the command line, benchmarks, the split explorer, interoperability, demo."""
