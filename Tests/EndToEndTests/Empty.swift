// Scripts over the real binary.
