//! Tests of the ledger in PostgreSQL, over a real server.
