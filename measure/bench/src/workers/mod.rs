//! `--workers N`: one run by several processes of this program on one machine.
//!
//! Each process reads the same command line and takes its part of the scenario ([`load::scenario::Part`]), so
//! the parts add up to the run of one process. An environment variable holds its number; it reads orders from
//! standard input and writes frames to standard output (`frame`). All processes connect, report that they are
//! ready, and begin at the moment that the coordinator names. A process exits when its standard input ends,
//! so none outlives the coordinator.
//!
//! `--listen` and `--join` do the same with machines: frames and orders share a TCP connection (`join`), and
//! the start is a delay, because the machines have no common clock.

mod coordinator;
mod fleet;
mod frame;
mod join;
mod worker;

use std::env;

use load::scenario::Part;

pub(crate) use coordinator::{Loaded, Where, load};
pub(crate) use join::token;
pub(crate) use worker::{serve, serve_coordinator};

/// The part of a process: `0/4` is the first of four.
const PART: &str = "FIREBRICK_BENCH_PART";

/// Returns the part of this process; `None` if it is not a worker of a coordinator.
pub(crate) fn part() -> Option<Part> {
    parse(&env::var(PART).ok()?)
}

fn parse(text: &str) -> Option<Part> {
    let (number, of) = text.split_once('/')?;
    Part::new(number.parse().ok()?, of.parse().ok()?)
}

fn shown(part: Part) -> String {
    format!("{}/{}", part.number(), part.of())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_back() {
        let part = Part::new(2, 4).unwrap();
        assert_eq!(parse(&shown(part)), Some(part));
        for wrong in ["", "4", "4/4", "x/4", "-1/4", "0/0"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
