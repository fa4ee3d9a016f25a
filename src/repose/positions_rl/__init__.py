"""Position tables learned by reinforcement, with Soft Actor-Critic (arXiv 2310.10930, 3.3).

table.py        read and write the file of a learned table; default.json ships with the package
rewards.py      the rewards, and the tables that a learned one is compared with
environment.py  the agent's task: assign all numbers of a table, get one reward
policy.py       learn a table; can be resumed

Shapes: a table is `n d`, n positions with d numbers each (8 x 16 by default). `...` is any number of tables. Reading a
table needs only numpy; learning one needs the extra `rl`.
"""
