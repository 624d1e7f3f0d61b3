"""Makes the keys of a team's services, and then their databases and buckets; what is there stays.

    python prepare.py keys /secrets     # before the services start
    python prepare.py stores /secrets   # after PostgreSQL and the storage answer

A folder of keys for each reader, so that a service is given no other's:

    postgres   the password of PostgreSQL's administrator
    mlflow     that of the role and database `mlflow`
    sweep      that of the role and database `sweeps`
    storage    the storage's one user, also as the file that S3 clients read
    tls        the certificate with its key that everybody on the Dask cluster shows
"""

import os
import secrets
import sys
from pathlib import Path

#: Role → the database that it owns.
DATABASES = {"mlflow": "mlflow", "sweep": "sweeps"}
BUCKETS = ("mlflow", "checkpoints")


def keys(root: Path) -> None:
    """Make what is missing, each file whole or absent."""
    for role in ("postgres", *DATABASES):
        password = _kept(root / role / "password", secrets.token_urlsafe(32))
        _write(root / role / "pg_service.conf", f"[team]\npassword={password}\n")
    user = _kept(root / "storage/user", secrets.token_hex(10))
    password = _kept(root / "storage/password", secrets.token_urlsafe(30))
    _write(
        root / "storage/credentials",
        f"[default]\naws_access_key_id = {user}\naws_secret_access_key = {password}\n",
    )
    certificate = root / "tls/team.pem"
    if not certificate.exists():
        from distributed import Security

        made = Security.temporary()  # valid for a year
        _write(certificate, made.tls_client_key + made.tls_client_cert)


def _kept(file: Path, new: str) -> str:
    if not file.exists():
        _write(file, new)
    return file.read_text()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)


def stores(root: Path) -> None:
    """Give each role its password and its database, and the storage its buckets.

    Server, user and keys come from the variables that libpq and boto read.
    """
    import boto3
    import psycopg
    from psycopg.sql import SQL, Identifier, Literal

    with psycopg.connect(autocommit=True) as connection:
        for role, database in DATABASES.items():
            password = Literal((root / role / "password").read_text())
            found = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role])
            verb = SQL("ALTER" if found.rowcount else "CREATE")
            connection.execute(
                SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, Identifier(role), password)
            )
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [database])
            names = {"database": Identifier(database), "role": Identifier(role)}
            if not found.rowcount:
                connection.execute(SQL("CREATE DATABASE {database} OWNER {role}").format(**names))
            connection.execute(SQL("REVOKE ALL ON DATABASE {database} FROM PUBLIC").format(**names))
    storage = boto3.client("s3")
    there = {bucket["Name"] for bucket in storage.list_buckets()["Buckets"]}
    for bucket in BUCKETS:
        if bucket not in there:
            storage.create_bucket(Bucket=bucket)


if __name__ == "__main__":
    {"keys": keys, "stores": stores}[sys.argv[1]](Path(sys.argv[2]))
