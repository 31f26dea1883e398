"""The collective environment: which NCCL, RCCL and process variables a job gets, and why.

The rules are rows of data; this package reads, checks and applies them. `conditions` is the small
language of their `when` column, `facts` what it may ask about, `rows` the rows as checked values,
`engine` the one pass over them.
"""

from app.trainjobs.collectives.engine import Rules
from app.trainjobs.collectives.rows import BadRule

__all__ = ["BadRule", "Rules"]
