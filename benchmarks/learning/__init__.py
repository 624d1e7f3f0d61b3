"""Learning over several seeds, beside published figures.

rows          environments, algorithms, settings, budgets, and what is to be reached
run           one run in a process of its own
report        docs/learning.md and its picture
updates       updates beside the reference's, from the same weights on the same batches
stored        learning from files alone, beside the policies that wrote them
environments  those that no package has
"""
