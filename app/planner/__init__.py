"""The pure core: numbers in, plan out. No I/O, no clock, no Kubernetes, no pydantic."""
