//! Table-driven tests over whole files of rules.
