"""Positional encoding learned by Soft Actor-Critic (arXiv 2310.10930, 3.3): rewards, environment, policy, table.

Shapes: `n` positions, `d` numbers for each, so that a table is `n d` (8 x 16 unless another is asked for); `...` is any
number of tables. Reading a table needs numpy alone; learning one needs the extra `rl`.
"""
