//! The order to take a profile, and the PROFILE payload: the records of a worker's profile.
//!
//! Contract: numbers of frames, nodes and requests count from 1 in the order of their records; a record only refers to earlier ones. All are
//! checked where the records are used, because they reach across payloads.

use crate::{Malformed, cursor::Cursor};

/// The highest rate of samples, per second.
pub const MOST_HZ: u16 = 1_000;
/// The most nodes of a worker's tree of stacks. Beyond that a stack is cut off at its inner end.
pub const MOST_NODES: u32 = 100_000;
/// The first byte of [`Record::Lacks`].
pub(crate) const LACKS: u8 = 8;
/// The longest text of a record, in bytes.
pub const LONGEST: usize = 1_000;

/// The time that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The time that passes.
    Wall,
    /// The processor time of each thread.
    Cpu,
}

/// The order to take a profile, one word of the scoreboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Distinguishes the order from the one before it; not zero.
    pub serial: u32,
    /// Samples per second, from 1 to [`MOST_HZ`].
    pub hz: u16,
    pub clock: Clock,
}

impl Order {
    pub fn pack(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.clock == Clock::Cpu) << 16 | u64::from(self.hz)
    }

    /// Unpacks a word; `None`: no profile is to be taken.
    pub fn unpack(word: u64) -> Option<Order> {
        let serial = (word >> 32) as u32;
        let hz = (word as u16).clamp(1, MOST_HZ);
        let clock = if word & 1 << 16 == 0 { Clock::Wall } else { Clock::Cpu };
        (serial != 0).then_some(Order { serial, hz, clock })
    }
}

/// The state of a thread at a sample, as far as the worker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SampledState {
    /// It has a processor, or is ready for one.
    Runs = 0,
    /// It collects garbage.
    Collects = 1,
    /// Ruby reports that it waits for the GVL.
    WaitsForGvl = 2,
    /// It waits for another thread: for the GVL, or in a lock.
    WaitsForThread = 3,
    /// The same, but Ruby reports that it does not wait for the GVL.
    WaitsInLock = 4,
    /// It waits in a system call.
    Waits = 5,
    /// It sleeps for a time.
    Sleeps = 6,
}

impl SampledState {
    pub const ALL: [SampledState; 7] = [
        SampledState::Runs,
        SampledState::Collects,
        SampledState::WaitsForGvl,
        SampledState::WaitsForThread,
        SampledState::WaitsInLock,
        SampledState::Waits,
        SampledState::Sleeps,
    ];
}

/// A record of a profile. Texts are bytes as Ruby has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A method, block or file. `full`: the label with its class; empty if it is unknown. A function in C has no path.
    Frame { path: &'a [u8], label: &'a [u8], full: &'a [u8] },
    /// A place in the tree of stacks: the line `line` of a frame, called from the node `parent` (0: from the server).
    Node { parent: u32, frame: u32, line: u32 },
    /// A request that samples belong to.
    Request { link: u32, id: u32, method: &'a [u8], path: &'a [u8] },
    /// Time in which a thread was at a node (0: unknown) for a request (0: unknown), in microseconds.
    Sample { node: u32, request: u32, seen: SampledState, us: u32 },
    /// The end of a request, the time it took in microseconds, and the name of its route, if it is known.
    Ended { request: u32, us: u64, route: &'a [u8] },
    /// The sums so far: requests that have ended, ticks of the clock, and ticks that came too late.
    Totals { requests: u64, ticks: u64, late: u64 },
    /// The limits of the worker have been reached: stacks are cut off or samples left out from here on.
    Truncated,
    /// The worker cannot take a profile: what it lacks.
    Lacks { what: &'a [u8] },
}

impl Record<'_> {
    /// Appends the record. Texts are cut to [`LONGEST`] bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Record::Frame { path, label, full } => {
                out.push(1);
                [path, label, full].into_iter().for_each(|one| text(out, one));
            }
            Record::Node { parent, frame, line } => {
                out.push(2);
                [parent, frame, line].into_iter().for_each(|one| number(out, one.into()));
            }
            Record::Request { link, id, method, path } => {
                out.push(3);
                [link, id].into_iter().for_each(|one| number(out, one.into()));
                [method, path].into_iter().for_each(|one| text(out, one));
            }
            Record::Sample { node, request, seen, us } => {
                out.push(4 | (seen as u8) << 4);
                [node, request, us].into_iter().for_each(|one| number(out, one.into()));
            }
            Record::Ended { request, us, route } => {
                out.push(5);
                [request.into(), us].into_iter().for_each(|one| number(out, one));
                text(out, route);
            }
            Record::Totals { requests, ticks, late } => {
                out.push(6);
                [requests, ticks, late].into_iter().for_each(|one| number(out, one));
            }
            Record::Truncated => out.push(7),
            Record::Lacks { what } => {
                out.push(LACKS);
                text(out, what);
            }
        }
    }
}

/// Appends seven bits at a time, the lowest first; all bytes but the last have bit 7.
fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(LONGEST)];
    number(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Reads the records of a payload. Ends after an error.
#[derive(Debug)]
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    pub fn new(payload: &'a [u8]) -> Records<'a> {
        Records(payload)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut cursor = Cursor::new(self.0);
        let record = read(&mut cursor);
        self.0 = if record.is_ok() { cursor.rest } else { &[] };
        Some(record)
    }
}

fn read<'a>(cursor: &mut Cursor<'a>) -> Result<Record<'a>, Malformed> {
    let tag = cursor.u8()?;
    match tag {
        1 => Ok(Record::Frame {
            path: read_text(cursor)?,
            label: read_text(cursor)?,
            full: read_text(cursor)?,
        }),
        2 => {
            Ok(Record::Node { parent: read_u32(cursor)?, frame: read_u32(cursor)?, line: read_u32(cursor)? })
        }
        3 => Ok(Record::Request {
            link: read_u32(cursor)?,
            id: read_u32(cursor)?,
            method: read_text(cursor)?,
            path: read_text(cursor)?,
        }),
        5 => Ok(Record::Ended {
            request: read_u32(cursor)?,
            us: read_number(cursor)?,
            route: read_text(cursor)?,
        }),
        6 => Ok(Record::Totals {
            requests: read_number(cursor)?,
            ticks: read_number(cursor)?,
            late: read_number(cursor)?,
        }),
        7 => Ok(Record::Truncated),
        LACKS => Ok(Record::Lacks { what: read_text(cursor)? }),
        _ if tag & 15 == 4 => {
            let seen = SampledState::ALL
                .get(usize::from(tag >> 4))
                .ok_or(Malformed("unknown state in a profile"))?;
            let (node, request, us) = (read_u32(cursor)?, read_u32(cursor)?, read_u32(cursor)?);
            Ok(Record::Sample { node, request, seen: *seen, us })
        }
        _ => Err(Malformed("unknown record in a profile")),
    }
}

fn read_number(cursor: &mut Cursor<'_>) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = cursor.u8()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed("a number in a profile is too large"))
}

fn read_u32(cursor: &mut Cursor<'_>) -> Result<u32, Malformed> {
    u32::try_from(read_number(cursor)?).map_err(|_| Malformed("a number in a profile is too large"))
}

fn read_text<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Malformed> {
    let len = read_number(cursor)?;
    if len > LONGEST as u64 {
        return Err(Malformed("a text in a profile is too long"));
    }
    cursor.bytes(len as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_are_read_back(n: [u32; 3], big: u64, a in proptest::collection::vec(any::<u8>(), 0..1_200), seen in 0..7usize) {
            let cut = &a[..a.len().min(LONGEST)];
            let records = |text| [
                Record::Frame { path: text, label: b"l", full: text },
                Record::Node { parent: n[0], frame: n[1], line: n[2] },
                Record::Request { link: n[0], id: n[1], method: b"GET", path: text },
                Record::Sample { node: n[0], request: n[1], seen: SampledState::ALL[seen], us: n[2] },
                Record::Ended { request: n[0], us: big, route: text },
                Record::Totals { requests: big, ticks: n[1].into(), late: n[2].into() },
                Record::Truncated,
                Record::Lacks { what: text },
            ];
            let mut out = Vec::new();
            records(&a).iter().for_each(|record| record.write(&mut out));
            prop_assert_eq!(Records::new(&out).collect::<Result<Vec<_>, _>>(), Ok(records(cut).to_vec()));
            for end in 0..out.len() {
                prop_assert!(Records::new(&out[..end]).count() <= 8);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (read, refused): (Vec<_>, Vec<_>) = Records::new(&bytes).partition(Result::is_ok);
            prop_assert!(read.len() <= bytes.len() && refused.len() <= 1);
        }

        #[test]
        fn an_order_survives_packing(serial: u32, hz in 1..=MOST_HZ, cpu: bool) {
            let clock = if cpu { Clock::Cpu } else { Clock::Wall };
            let order = Order { serial, hz, clock };
            prop_assert_eq!(Order::unpack(order.pack()), (serial != 0).then_some(order));
        }
    }
}
