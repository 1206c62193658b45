//! TLS for servers: configurations, certificates by name, session tickets, key files that are read again.
#![forbid(unsafe_code)]
