"""The history of a sweep in SQL, in a file or on a server, written by one driver.

ledger      appends events in transactions, and reads them
changes     changes of the space and of the end since the creation, found in events
codec       converts events to plain data and back, checking every field
tables      the SQL tables; access to SQLite files
postgres    access to the same tables in a schema of PostgreSQL
storage     chooses between the two from the ledger's path
signed      signed files of a sweep's folder that name a server or a task
requests    requests to a running driver, one row each
folder      the folder of a sweep, and its lock
process     checks whether a recorded process still runs
lease       the row that names the machine driving the sweep
hold        exclusive use of a sweep while it is driven, repaired or synchronised
upgrade     brings an older ledger to the current tables
migrations  one script for each revision of the tables
"""
