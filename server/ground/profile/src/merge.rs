//! Makes one profile of the records of all workers.

use crate::model::{Profile, ProfileSample, Request, Stack, StackFrame, VERSION, WorkerPart};
use crate::{Folders, State};
use std::collections::HashMap;
use wire::Malformed;
use wire::profile::{Record, Records, SampledState};

/// The records of a worker.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// The number of the worker.
    pub worker: u32,
    pub pid: u32,
    /// The worker has sent everything.
    pub complete: bool,
    /// The server has left out some of what it has sent.
    pub truncated: bool,
    pub records: Vec<u8>,
}

/// A frame as a worker knows it.
struct KnownFrame {
    path: String,
    label: String,
    full: String,
}

/// The full labels by path and label; `None`: there are several.
type Labels = HashMap<(String, String), Option<String>>;

/// Merges the parts of a profile, whose own fields the caller sets.
pub fn merge(parts: &[Part], folders: &Folders) -> Profile {
    let labels = labels(parts);
    let mut merged = Merged::default();
    for part in parts {
        let mut worker = WorkerPart {
            worker: part.worker,
            pid: part.pid,
            truncated: part.truncated,
            ..WorkerPart::default()
        };
        let mut numbers = Numbers::default();
        let read = Records::new(&part.records)
            .try_for_each(|record| merged.add(record?, &mut numbers, &mut worker, &labels, folders));
        worker.complete = part.complete && read.is_ok();
        merged.profile.workers.push(worker);
    }
    let mut samples: Vec<ProfileSample> = merged
        .samples
        .into_iter()
        .map(|((stack, state, request), us)| ProfileSample { stack, state, request, us })
        .collect();
    samples.sort_by_key(|sample| (sample.stack, sample.state, sample.request));
    Profile { version: VERSION, samples, ..merged.profile }
}

fn labels(parts: &[Part]) -> Labels {
    let mut labels = Labels::new();
    for record in parts.iter().flat_map(|part| Records::new(&part.records)).map_while(Result::ok) {
        if let Record::Frame { path, label, full } = record
            && !full.is_empty()
        {
            let full = lossy(full);
            let entry = labels.entry((lossy(path), lossy(label))).or_insert_with(|| Some(full.clone()));
            if entry.as_ref().is_some_and(|other| *other != full) {
                *entry = None;
            }
        }
    }
    labels
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The numbers of a worker's frames, nodes and requests in the profile.
#[derive(Default)]
struct Numbers {
    frames: Vec<u32>,
    nodes: Vec<u32>,
    requests: Vec<u32>,
}

#[derive(Default)]
struct Merged {
    profile: Profile,
    frames: HashMap<StackFrame, u32>,
    stacks: HashMap<(Option<u32>, u32, u32), u32>,
    samples: HashMap<(Option<u32>, State, Option<u32>), u64>,
    /// Names requests for which the app has no route.
    routes: text::route::Buffer,
}

impl Merged {
    fn add(
        &mut self,
        record: Record<'_>,
        numbers: &mut Numbers,
        worker: &mut WorkerPart,
        labels: &Labels,
        folders: &Folders,
    ) -> Result<(), Malformed> {
        match record {
            Record::Frame { path, label, full } => {
                let known = KnownFrame { path: lossy(path), label: lossy(label), full: lossy(full) };
                numbers.frames.push(self.frame(&named(known, labels, folders)));
            }
            Record::Node { parent, frame, line } => {
                let parent = at(&numbers.nodes, parent)?;
                let frame = at(&numbers.frames, frame)?.ok_or(Malformed("a node without a frame"))?;
                numbers.nodes.push(self.stack(parent, frame, line));
            }
            Record::Request { link, id, method, path } => {
                numbers.requests.push(self.profile.requests.len() as u32);
                self.profile.requests.push(Request {
                    worker: worker.worker,
                    link,
                    id,
                    method: lossy(method),
                    path: lossy(path),
                    route: self.routes.of_request(method, path).to_owned(),
                    ..Request::default()
                });
            }
            Record::Sample { node, request, seen, us } => {
                let (stack, request) = (at(&numbers.nodes, node)?, at(&numbers.requests, request)?);
                let state = self.state(stack, seen);
                *self.samples.entry((stack, state, request)).or_default() += u64::from(us);
            }
            Record::Ended { request, us, route } => {
                let request = at(&numbers.requests, request)?.ok_or(Malformed("the end of no request"))?;
                if let Some(request) = self.profile.requests.get_mut(request as usize) {
                    request.ms = Some(us as f64 / 1e3);
                    if !route.is_empty() {
                        request.route = lossy(route);
                    }
                }
            }
            Record::Totals { requests, ticks, late } => {
                (worker.requests, worker.ticks, worker.late) = (requests, ticks, late);
            }
            Record::Truncated => worker.truncated = true,
            Record::Lacks { what } => worker.lacks = lossy(what),
        }
        Ok(())
    }

    fn frame(&mut self, frame: &StackFrame) -> u32 {
        if let Some(number) = self.frames.get(frame) {
            return *number;
        }
        let number = self.profile.frames.len() as u32;
        self.frames.insert(frame.clone(), number);
        self.profile.frames.push(frame.clone());
        number
    }

    fn stack(&mut self, parent: Option<u32>, frame: u32, line: u32) -> u32 {
        let next = self.profile.stacks.len() as u32;
        let number = *self.stacks.entry((parent, frame, line)).or_insert(next);
        if number == next {
            self.profile.stacks.push(Stack { parent, frame, line });
        }
        number
    }

    fn state(&self, stack: Option<u32>, seen: SampledState) -> State {
        let stack_at =
            |number: Option<u32>| number.and_then(|number| self.profile.stacks.get(number as usize));
        let frame_of = |stack: &Stack| self.profile.frames.get(stack.frame as usize);
        let innermost = stack_at(stack);
        let (top, caller) =
            (innermost.and_then(frame_of), innermost.and_then(|one| stack_at(one.parent)).and_then(frame_of));
        let label =
            |frame: Option<&StackFrame>| frame.map_or("", |frame| without_class(&frame.name)).to_owned();
        State::of(seen, top.is_some_and(|frame| frame.file.is_none()), &label(top), &label(caller))
    }
}

/// Returns what a number from 1 stands for; `None` for 0.
fn at(numbers: &[u32], number: u32) -> Result<Option<u32>, Malformed> {
    let Some(at) = (number as usize).checked_sub(1) else { return Ok(None) };
    let known = numbers.get(at).copied();
    known.map(Some).ok_or(Malformed("a number in a profile refers to no record"))
}

fn named(known: KnownFrame, labels: &Labels, folders: &Folders) -> StackFrame {
    let KnownFrame { path, label, full } = known;
    let file = (!path.is_empty()).then(|| folders.short(&path).to_owned());
    let learned =
        |label: String| labels.get(&(path.clone(), label.clone())).cloned().flatten().unwrap_or(label);
    let name = if full.is_empty() { learned(label) } else { full };
    let name = if name.is_empty() { "(unnamed)".to_owned() } else { name };
    StackFrame { name, file }
}

/// Returns the name of the method alone.
fn without_class(name: &str) -> &str {
    let method = name.rfind(['#', '.']).map_or(name, |at| &name[at + 1..]);
    if method.is_empty() { name } else { method }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(worker: u32, records: &[Record<'_>]) -> Part {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.write(&mut bytes));
        Part { worker, pid: 10 + worker, complete: true, truncated: false, records: bytes }
    }

    #[test]
    fn the_same_places_of_all_workers_become_one() {
        let by_frames = part(
            0,
            &[
                Record::Frame { path: b"/app/a.rb", label: b"call", full: b"App#call" },
                Record::Frame { path: b"", label: b"sleep", full: b"Kernel#sleep" },
                Record::Node { parent: 0, frame: 1, line: 3 },
                Record::Node { parent: 1, frame: 2, line: 0 },
                Record::Request { link: 0, id: 5, method: b"GET", path: b"/x" },
                Record::Sample { node: 2, request: 1, seen: SampledState::Waits, us: 10 },
                Record::Ended { request: 1, us: 1_500, route: b"x#y" },
                Record::Totals { requests: 7, ticks: 100, late: 1 },
            ],
        );
        let by_backtraces = part(
            1,
            &[
                Record::Frame { path: b"/app/a.rb", label: b"call", full: b"" },
                Record::Frame { path: b"", label: b"sleep", full: b"" },
                Record::Node { parent: 0, frame: 1, line: 3 },
                Record::Node { parent: 1, frame: 2, line: 0 },
                Record::Sample { node: 2, request: 0, seen: SampledState::Waits, us: 20 },
                Record::Truncated,
            ],
        );
        let profile = merge(&[by_frames, by_backtraces], &Folders::new(["/app".to_owned()]));
        let frames: Vec<_> =
            profile.frames.iter().map(|frame| (frame.name.as_str(), frame.file.as_deref())).collect();
        assert_eq!(frames, [("App#call", Some("a.rb")), ("Kernel#sleep", None)]);
        let row = |request, us| ProfileSample { stack: Some(1), state: State::Sleep, request, us };
        assert_eq!((profile.stacks.len(), &profile.samples), (2, &vec![row(None, 20), row(Some(0), 10)]));
        let request = &profile.requests[0];
        assert_eq!((request.ms, request.route.as_str(), request.id), (Some(1.5), "x#y", 5));
        assert_eq!(
            profile.workers.iter().map(|one| (one.requests, one.truncated, one.complete)).collect::<Vec<_>>(),
            [(7, false, true), (0, true, true)]
        );
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(Profile::read(&text), Ok(profile));
    }

    #[test]
    fn a_worker_that_breaks_a_rule_spoils_only_its_own_part() {
        let wrong = part(0, &[Record::Node { parent: 0, frame: 1, line: 1 }]);
        let right = part(1, &[Record::Sample { node: 0, request: 0, seen: SampledState::Runs, us: 5 }]);
        let profile = merge(&[wrong, right], &Folders::default());
        assert_eq!(profile.workers.iter().map(|one| one.complete).collect::<Vec<_>>(), [false, true]);
        assert_eq!(profile.samples.len(), 1);
    }

    #[test]
    fn documents_that_refer_to_nothing_are_refused() {
        let of = |text: &str| Profile::read(text).unwrap_err();
        assert!(of("{}").contains("version 0"));
        assert!(of(r#"{"version":1,"samples":[[0,"runs",null,1]]}"#).contains("lacks"));
        let circle = r#"{"version":1,"frames":[{"name":"a","file":null}],"stacks":[[0,0,1]]}"#;
        assert!(of(circle).contains("lacks"));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_valid_profile(records in proptest::collection::vec(any::<u8>(), 0..300)) {
            let profile = merge(&[Part { records, ..Part::default() }], &Folders::default());
            prop_assert_eq!(Profile::read(&serde_json::to_string(&profile).unwrap()), Ok(profile));
        }
    }
}
