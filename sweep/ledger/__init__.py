"""The history of a sweep in SQL, in a file or on a server, which one driver writes.

ledger      appends events in transactions, and reads them
codec       events as plain data, checked field by field
tables      the SQL tables, and SQLite files
postgres    the tables in a schema of PostgreSQL
storage     which of the two a ledger lies in
signed      files of its folder that say where something lies
requests    what people ask of a running driver, one row each
folder      where a sweep lies, and its lock
process     whether a process that has written down its number runs
lease       which machine drives the sweep
hold        nobody else drives, mends or sends meanwhile
upgrade     brings an older ledger to today's tables
migrations  one script for each step of the tables
"""
