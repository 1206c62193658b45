//! HTTP Basic authentication (RFC 7617) against an htpasswd file.
//!
//! Why all this for a password: each request of a page carries it, good hashes take milliseconds to tens of them, and a
//! front thread serves thousands of clients. So what has been verified is remembered (as a keyed digest), the slow part
//! runs on threads of its own, few at a time, and what the clock tells about a name is the same whether it exists or not.

mod credentials;
mod gatekeeper;
mod hash;
mod htpasswd;
mod md5_crypt;
mod memory;

pub use gatekeeper::{Gatekeeper, challenge};
pub use htpasswd::{Mistake, Users};
