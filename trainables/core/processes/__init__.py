"""Child processes: how they begin, what is asked of them, how they end.

starting  a child's first instants
worker    one that computes one thing after the other, and may be started early
child     a child that is asked and answers
printing  what they print costs them nothing on a full disk
ending    children that die with their parents
tidying   what tidies up after killed processes
"""
