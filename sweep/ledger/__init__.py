"""The history of a sweep on disk: an SQL file that one driver writes.

ledger      appends events in transactions, and reads them
codec       events as plain data, checked field by field
tables      the SQL tables
requests    what people ask of a running driver, one row each
folder      where a sweep lies, and its lock
lease       which machine drives the sweep
hold        nobody else drives, mends or sends meanwhile
upgrade     brings an older ledger to today's tables
migrations  one script for each step of the tables
"""
