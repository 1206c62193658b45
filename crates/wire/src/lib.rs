//! Frames between front and worker: encode, decode, validate. No I/O.
//!
//! Why: the front and its workers are separate programs in separate languages, so what travels between them is
//! a published format (`docs/wire.md`), implemented once and linked into both.
//!
//! Contract:
//! 1. Decoders take bytes from the other side and never panic, read out of bounds or allocate by a claimed length.
//! 2. What an encoder of this crate wrote, its decoder reads back unchanged.
//! 3. Every rule that `docs/wire.md` states is checked here, and a breach names the rule.
#![forbid(unsafe_code)]

mod cursor;
pub mod frame;
pub mod hello;
pub mod names;
pub mod request;
pub mod response;
pub mod scoreboard;
pub mod times;
pub mod traces;

pub use frame::{Frame, Header, Kind, flag};

/// The version of docs/wire.md that this is. Both sides compare it before the app is loaded.
pub const VERSION: u8 = 7;

/// Why bytes from the other side were refused. The text names the rule of `docs/wire.md` that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed frame: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Body bytes of one response that may be under way without a `WINDOW` frame from the front.
pub const INITIAL_WINDOW: u32 = 1 << 20;
