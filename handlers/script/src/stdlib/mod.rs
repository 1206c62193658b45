//! Parts of Ruby's standard library that mruby lacks: JSON, Regexp, digests, time formats, `require`.
//!
//! Each part is a maintained crate behind calls, with a prelude that adds the names of Ruby's library.
//! Contract: a call never enters the VM, its time and memory are bounded by its arguments, and its errors
//! name the mistake.

mod codec;
pub(crate) mod files;
mod json;
mod process;
mod regexp;
mod time;

use crate::ops::Area;
use std::time::Instant;

/// The state of the calls.
pub(crate) struct StdlibState {
    patterns: regexp::Patterns,
    pub(crate) folders: files::Folders,
    start: Instant,
}

impl Default for StdlibState {
    fn default() -> StdlibState {
        StdlibState { patterns: Default::default(), folders: Default::default(), start: Instant::now() }
    }
}

macro_rules! preludes {
    ($($file:literal),* $(,)?) => { &[$((concat!("stdlib/", $file), include_str!(concat!("../ruby/stdlib/", $file)))),*] };
}

/// Ruby code on top of the calls, in the order of evaluation.
const PRELUDES: &[(&str, &str)] = preludes![
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

pub(crate) const AREA: Area<StdlibState> = Area {
    calls: &[
        ("JSON_GENERATE", |_, args, tape| json::generate(args, tape)),
        ("JSON_PARSE", |_, args, tape| json::parse(args, tape)),
        ("REGEXP_CHECK", |state, args, tape| regexp::check(&state.patterns, args, tape)),
        ("REGEXP_FIND", |state, args, tape| regexp::find(&state.patterns, args, tape)),
        ("REGEXP_TEST", |state, args, tape| regexp::test(&state.patterns, args, tape)),
        ("REGEXP_LAST", |state, args, tape| regexp::last(&state.patterns, args, tape)),
        ("REGEXP_ALL", |state, args, tape| regexp::all(&state.patterns, args, tape)),
        ("REGEXP_REPLACE", |state, args, tape| regexp::replace(&state.patterns, args, tape)),
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
        ("FILE_FOLDERS", |state, _, tape| files::folders(&state.folders, tape)),
        ("FILE_READ", |state, args, tape| files::read(&state.folders, args, tape)),
        ("ENVIRONMENT", |_, _, tape| process::environment(tape)),
        ("CLOCK", |state, args, tape| process::clock(state.start, args, tape)),
        ("PID", |_, _, tape| {
            tape.int(std::process::id().into());
        }),
        ("UTF8", |_, args, tape| process::is_utf8(args, tape)),
        ("SCRUB", |_, args, tape| process::scrub(args, tape)),
    ],
    waits: &[],
    preludes: PRELUDES,
};
