//! Encodes, decodes and validates the frames between front and worker. No I/O.
//!
//! Why: the front and its workers are separate programs in separate languages, so the data between them has a
//! published format (`docs/internals/wire.md`), implemented once and linked into both.
//!
//! Contract:
//! 1. Decoders take bytes from the other side, and never panic, read out of bounds or allocate by a claimed
//!    length.
//! 2. A decoder reads back unchanged what the encoder of this crate has written.
//! 3. Every rule of `docs/internals/wire.md` is checked here, and the error names the rule.
#![forbid(unsafe_code)]

mod cursor;
pub mod dump;
pub mod frame;
pub mod heap;
pub mod hello;
pub mod names;
pub mod profile;
pub mod recorder;
pub mod request;
pub mod response;
pub mod route;
#[cfg(test)]
mod ruby;
pub mod scoreboard;
pub mod seats;
pub mod template;
pub mod times;
pub mod traces;
pub mod used;

pub use frame::{Frame, FrameKind, Header, flag};
pub use seats::Seats;

/// The version of docs/internals/wire.md that this crate implements. Both sides compare it before the app is loaded.
pub const VERSION: u8 = 13;

/// Why bytes from the other side were refused. The text names the broken rule of `docs/internals/wire.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed frame: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// The number of body bytes of one response that may be in transit without a `WINDOW` frame from the front.
pub const INITIAL_WINDOW: u32 = 1 << 20;
