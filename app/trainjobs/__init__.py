"""One adapter per TrainJob API, and the collective environment rules."""
