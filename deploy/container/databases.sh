#!/bin/sh
# Two databases with a role each: what Prefect may change decides what is run, the ledger what people pay.
set -eu
for name in ledger prefect; do
    psql --set ON_ERROR_STOP=1 --username postgres \
        --set name="$name" --set password="$(sed -n "s/^$name://p" /run/secrets/postgres_roles)" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
