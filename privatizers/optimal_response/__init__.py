"""The least noisy unbiased randomiser of a number, by a linear programme, in whole numbers."""
