//! The shadow of a reload: copies of clients' requests go to a worker of the new code and to one of the old, off the
//! clients' path, and the responses are compared. No client meets either worker, and no client waits for them.
//!
//! Why pairs: only responses to the same request, at the same moment, of processes of the same age, differ by the code
//! alone. Why the old worker is asked twice: what differs then is noise, such as ids, times and nonces, and is never
//! reported for that route. (Diffy learns noise in this way.)
//!
//! Contract:
//! 1. Only requests that should change nothing are copied: GET and HEAD without a body, a range or an upgrade, of the
//!    default pool, without secrets in the URL ([`copy`]). A copy has no cookies and no credentials, for both workers,
//!    and it has `firebrick.shadow` in its env, which no client can set.
//! 2. At most one copy is in progress, and only while no request waits and a seat is free; what it costs is limited
//!    ([`lane`]). Without a shadow, and while a copy is in progress, a request
//!    costs one atomic load.
//! 3. A difference counts if all responses of the old worker agree, and all of the new one differ from them, in up to
//!    eleven responses to the same request ([`rounds`]). A part that is random with any probability is found different
//!    so in less than one of 1,000 such rounds, and then only if it has not been learned as noise before or after.
//! 4. Figures (failures, times, objects, queries) are judged by [`crate::trial`], as in the watch that follows.
//! 5. Responses go nowhere. The findings are bounded, and have names and types, never values of bodies.
//!
//! The files: [`copy`] makes the copies; [`lane`] is the budget; `local/copies.rs` sends a copy and reads the
//! response; [`parts`] and [`shape`] are what of a response is compared, with [`json`], [`html`] and [`fields`]; [`rounds`] compares; [`routes`] keeps
//! what was found by route; [`state`] is shared by the threads; [`report`] is the list for people.

mod copy;
mod fields;
mod html;
mod json;
mod lane;
mod parts;
mod report;
mod rounds;
mod routes;
mod shape;
mod state;

pub(crate) use copy::{RequestCopy, Side};
pub(crate) use lane::PoolLoad;
pub use parts::Shape;
pub(crate) use parts::{QUERIES, STATUS};
pub(crate) use rounds::Round;
pub(crate) use shape::LONGEST_BODY;
pub use shape::shape;
pub(crate) use state::{FinishedRound, Pair, Shadow};
