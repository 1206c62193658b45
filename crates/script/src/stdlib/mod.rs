//! What Ruby people expect to be there and mruby does not have: JSON, Regexp, digests, time formats, `require`.
//!
//! Why here: each is a well-kept crate behind a call, with a prelude that gives it the names of Ruby's standard library.
//! Contract: a call is a leaf, bounded in time and memory by what it is given; what it refuses it names.

mod json;

use crate::ops::Call;

/// What the calls below remember.
#[derive(Default)]
pub(crate) struct State {}

/// Ruby on top of the calls, in the order in which it is loaded.
pub(crate) const PRELUDES: &[(&str, &str)] = &[("stdlib/json.rb", include_str!("../ruby/stdlib/json.rb"))];

/// The calls.
pub(crate) const CALLS: &[(&str, Call)] = &[
    ("JSON_GENERATE", |_, args, tape| json::generate(args, tape)),
    ("JSON_PARSE", |_, args, tape| json::parse(args, tape)),
];
