"""Our own forward of the Llama family: what transformers computes, with fewer passes and without padding."""
