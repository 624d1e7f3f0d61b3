"""Speed of sweep, compared with other libraries and with the shortest loops written by hand.

cases      the comparisons, and the ratio that each should reach
against    comparison of our own costs with those of another checkout
runner     alternates the sides of a case, one process at a time, and stores every run
peers      separate environments for the other libraries
report     docs/performance.md
pictures   docs/performance.svg
measures   one program per measurement; each prints one line of JSON with ``value``
"""
