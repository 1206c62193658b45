//! Implements HTTP/3 for servers (RFC 9114) and QPACK (RFC 9204), without I/O.
//!
//! Why: quinn implements QUIC. The contents of its streams are simple, and share field coding and message
//! rules with HTTP/2 (`fieldcode`).
//!
//! Contract:
//! 1. No I/O: bytes of one stream in, events or an error out. Any split of the same bytes gives the same result.
//! 2. The memory that a client can use is bounded: frame headers are 16 bytes, a field section is held up to
//!    `max_header_bytes` of encoded bytes, control frames up to [`control::MAX_FRAME`], and DATA is passed on
//!    as it arrives.
//! 3. QPACK's dynamic table has no room (SETTINGS_QPACK_MAX_TABLE_CAPACITY is 0, its default): no section
//!    waits for another stream, and an idle connection holds no table.
#![forbid(unsafe_code)]

pub mod control;
mod error;
mod frame;
pub mod qpack;
mod request;
mod varint;

pub use control::{ControlStream, UniStream};
pub use error::{Code, Error};
pub use frame::{data_header, encode_frame};
pub use request::{Costs, Event, RequestStream};
pub use varint::encode as encode_varint;
