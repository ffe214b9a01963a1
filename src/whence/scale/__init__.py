"""The array engine: the decisions of the (N, R, K) clock for 10^4 processes and 10^9 deliveries."""
