"""The same planner for people: plan, estimate, compare, launch, cost."""
