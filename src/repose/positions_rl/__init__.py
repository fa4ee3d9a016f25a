"""Positional encoding learned by Soft Actor-Critic (arXiv 2310.10930, 3.3).

table.py        the file of a learned table; default.json is the one that ships
rewards.py      what a table is worth, and the tables that a learned one is measured against
environment.py  the task of the agent: one assignment of all numbers, one reward
policy.py       the learning itself, which can be resumed

Shapes: `n` positions, `d` numbers for each, so that a table is `n d` (8 x 16 unless another is asked for); `...` is any
number of tables. Reading a table needs numpy alone; learning one needs the extra `rl`.
"""
