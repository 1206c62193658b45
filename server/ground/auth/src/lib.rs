//! Implements HTTP Basic authentication (RFC 7617) against an htpasswd file.
//!
//! Every request of a page carries the password, a good hash takes milliseconds to tens of milliseconds to
//! verify, and a front thread serves thousands of clients. So verified credentials are cached (as a keyed
//! digest), slow hashes are computed on blocking threads, a few at a time, and a request for an unknown user
//! takes as long as one for a known user.
#![forbid(unsafe_code)]

mod authenticator;
mod checks;
mod credentials;
mod hash;
mod htpasswd;
mod md5_crypt;
mod verified;

pub use authenticator::{Authenticator, challenge};
pub use checks::{PasswordClient, TooManyChecks};
pub use htpasswd::{HtpasswdMistake, Users};
