"""Learning over several seeds, compared with published figures.

rows          environments, algorithms, settings, budgets and goals
run           one run in a process of its own
report        docs/learning.md and its picture
updates       comparison of single updates with those of the reference, from the same weights
stored        learning from files alone, compared with the policies that wrote the files
environments  environments that no package has
"""
