"""Programs for stock Linux, which need only librdmacm and libibverbs: the other end of this project's devices."""
