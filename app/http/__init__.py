"""The FastAPI shell: parse, call, render."""
