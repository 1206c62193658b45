//! What Ruby people expect to be there and mruby does not have: JSON, Regexp, digests, time formats, `require`.
//!
//! Why here: each is a well-kept crate behind a call, with a prelude that gives it the names of Ruby's standard library.
//! Contract: a call is a leaf, bounded in time and memory by what it is given; what it refuses it names.

mod codec;
pub(crate) mod files;
mod json;
mod process;
mod regexp;
mod time;

use crate::ops::Call;
use std::time::Instant;

/// What the calls below remember.
pub(crate) struct State {
    patterns: regexp::Patterns,
    pub(crate) folders: files::Folders,
    begun: Instant,
}

impl Default for State {
    fn default() -> State {
        State { patterns: Default::default(), folders: Default::default(), begun: Instant::now() }
    }
}

macro_rules! preludes {
    ($($file:literal),* $(,)?) => { &[$((concat!("stdlib/", $file), include_str!(concat!("../ruby/stdlib/", $file)))),*] };
}

/// Ruby on top of the calls, in the order in which it is loaded.
pub(crate) const PRELUDES: &[(&str, &str)] = preludes![
    "core.rb",
    "json.rb",
    "regexp.rb",
    "match.rb",
    "string.rb",
    "codec.rb",
    "time.rb",
    "uri.rb",
    "stringio.rb",
    "set.rb",
    "logger.rb",
    "files.rb",
    "sandbox.rb",
];

/// The calls.
pub(crate) const CALLS: &[(&str, Call)] = &[
    ("JSON_GENERATE", |_, args, tape| json::generate(args, tape)),
    ("JSON_PARSE", |_, args, tape| json::parse(args, tape)),
    ("REGEXP_CHECK", |state, args, tape| regexp::check(&state.stdlib.patterns, args, tape)),
    ("REGEXP_FIND", |state, args, tape| regexp::find(&state.stdlib.patterns, args, tape)),
    ("REGEXP_TEST", |state, args, tape| regexp::test(&state.stdlib.patterns, args, tape)),
    ("REGEXP_LAST", |state, args, tape| regexp::last(&state.stdlib.patterns, args, tape)),
    ("REGEXP_ALL", |state, args, tape| regexp::all(&state.stdlib.patterns, args, tape)),
    ("REGEXP_REPLACE", |state, args, tape| regexp::replace(&state.stdlib.patterns, args, tape)),
    ("BASE64_ENCODE", |_, args, tape| codec::base64_encode(args, tape)),
    ("BASE64_DECODE", |_, args, tape| codec::base64_decode(args, tape)),
    ("PERCENT", |_, args, tape| codec::percent(args, tape)),
    ("UNPERCENT", |_, args, tape| codec::unpercent(args, tape)),
    ("DIGEST", |_, args, tape| codec::digest(args, tape)),
    ("HMAC", |_, args, tape| codec::hmac(args, tape)),
    ("RANDOM", |_, args, tape| codec::random(args, tape)),
    ("EQUAL", |_, args, tape| codec::equal(args, tape)),
    ("TIME_FORMAT", |_, args, tape| time::format(args, tape)),
    ("TIME_PARSE", |_, args, tape| time::parse(args, tape)),
    ("FILE_FOLDERS", |state, _, tape| files::folders(&state.stdlib.folders, tape)),
    ("FILE_READ", |state, args, tape| files::read(&state.stdlib.folders, args, tape)),
    ("ENVIRONMENT", |_, _, tape| process::environment(tape)),
    ("CLOCK", |state, args, tape| process::clock(state.stdlib.begun, args, tape)),
    ("PID", |_, _, tape| {
        tape.int(std::process::id().into());
    }),
    ("UTF8", |_, args, tape| process::is_utf8(args, tape)),
    ("SCRUB", |_, args, tape| process::scrub(args, tape)),
];
