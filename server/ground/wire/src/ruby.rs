//! Makes `worker/lib/firebrick/wire.rb`, the constants of the wire for Ruby, and checks that the file is up to date.

use std::fmt::Write;
use std::path::Path;

use crate::frame::{self, FrameKind, flag};
use crate::{hello, names, profile, route, scoreboard, template, times, traces};

/// `END` is a keyword of Ruby.
fn name(name: &str) -> String {
    if name.eq_ignore_ascii_case("end") { "FINISH".to_owned() } else { name.to_ascii_uppercase() }
}

/// Writes a number with `_` between groups of three digits.
fn number(value: usize) -> String {
    let digits = value.to_string();
    let groups: Vec<String> =
        digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into()).collect();
    groups.join("_")
}

fn module(out: &mut String, about: &str, name: &str, constants: impl IntoIterator<Item = (String, String)>) {
    let _ = writeln!(out, "\n    # {about}\n    module {name}");
    constants.into_iter().for_each(|(name, value)| {
        let _ = writeln!(out, "      {name} = {value}");
    });
    out.push_str("    end\n");
}

fn ruby() -> String {
    let mut out = "\
# frozen_string_literal: true

# Made from server/ground/wire by `FIREBRICK_REGENERATE=1 cargo test -p wire ruby`.

module Firebrick
  # The constants of docs/internals/wire.md and docs/internals/processes.md.
  module Wire
"
    .to_owned();
    for (name, value) in [
        ("VERSION", crate::VERSION.into()),
        ("HEADER", frame::HEADER),
        ("MAX_PAYLOAD", frame::MAX_PAYLOAD),
        ("INITIAL_WINDOW", crate::INITIAL_WINDOW as usize),
        ("UNKNOWN_TIME", times::UNKNOWN as usize),
    ] {
        let _ = writeln!(out, "    {name} = {}", number(value));
    }
    let kinds = FrameKind::ALL.iter().map(|(kind, byte)| (name(kind), format!("{byte:#04x}")));
    module(&mut out, "Kinds of frames; those of workers have the highest bit.", "Frame", kinds);
    let flags = [
        ("WHOLE", flag::END),
        ("FAILED", flag::FAILED),
        ("MADE", flag::MADE),
        ("STREAM", flag::STREAM),
        ("FD", flag::FD),
        ("LAST", flag::LAST),
    ];
    let bytes = |(name, byte): (&str, u8)| (name.to_owned(), format!("{byte:#04x}"));
    module(&mut out, "Flags of frames.", "Flag", flags.map(bytes));
    let can = [("BESIDE", hello::can::BESIDE), ("SCOREBOARD", hello::can::SCOREBOARD)];
    module(&mut out, "Capabilities in HELLO.", "Can", can.map(bytes));
    let sizes = |(name, size): (&str, usize)| (name.to_owned(), number(size));
    let slot = [
        ("HEADER", scoreboard::HEADER),
        ("THREAD", scoreboard::THREAD),
        ("LINK", scoreboard::LINK),
        ("REQUESTS", scoreboard::REQUESTS),
        ("FAILURES", scoreboard::FAILURES),
        ("THREADS", scoreboard::THREADS),
        ("PROFILE", scoreboard::PROFILE),
    ];
    module(&mut out, "Bytes and offsets of a scoreboard slot.", "Slot", slot.map(sizes));
    let limits = [
        ("MOST_LINES", traces::MOST_LINES),
        ("LONGEST", traces::LONGEST),
        ("MOST_BYTES", traces::MOST_BYTES),
    ];
    module(&mut out, "Limits of TRACES.", "Traces", limits.map(sizes));
    let limits = [("MOST", usize::from(route::MOST)), ("LONGEST", route::LONGEST)];
    module(&mut out, "Limits of ROUTE.", "Route", limits.map(sizes));
    module(&mut out, "Records of PROFILE.", "Profile", [bytes(("LACKS", profile::LACKS))]);
    for (words, about) in template::ALL.iter().zip([
        "First words of messages from the front.",
        "First words of messages to the front.",
        "How a worker or service ended.",
        "Keys of `boot`.",
        "Keys of `booted`.",
        "First words of the lines from the guard of a service.",
    ]) {
        let title = format!("{}{}", words.0[..1].to_ascii_uppercase(), &words.0[1..]);
        let constants = words.1.iter().map(|(name, word)| ((*name).to_owned(), format!("{word:?}")));
        module(&mut out, about, &title, constants);
    }
    out.push_str("\n    # Field names that travel as one byte: the code of a name is its position plus one.\n    NAMES = %w[\n");
    let mut line = String::from("     ");
    for name in names::KNOWN {
        if line.len() + name.len() + 1 > 118 {
            let _ = writeln!(out, "{line}");
            line = String::from("     ");
        }
        let _ = write!(line, " {name}");
    }
    let _ = writeln!(out, "{line}\n    ].freeze\n  end\nend");
    out
}

#[test]
fn wire_rb_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../worker/lib/firebrick/wire.rb");
    let made = ruby();
    if std::env::var_os("FIREBRICK_REGENERATE").is_some() {
        std::fs::write(&path, &made).expect("worker/lib/firebrick/wire.rb can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "worker/lib/firebrick/wire.rb is old: FIREBRICK_REGENERATE=1 cargo test -p wire ruby"
    );
}
