//! The document of a profile.

use crate::State;
use serde::{Deserialize, Serialize};

/// A profile. Numbers of frames, stacks and requests count from 0 in their lists.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// The version of this document.
    pub version: u32,
    /// When the profile began: RFC 3339, in UTC.
    pub started_at: String,
    pub seconds: f64,
    /// Samples per second.
    pub hz: u32,
    /// `wall`: time that passes; `cpu`: processor time.
    pub clock: String,
    /// The app's folder.
    pub dir: String,
    pub workers: Vec<WorkerPart>,
    pub frames: Vec<StackFrame>,
    pub stacks: Vec<Stack>,
    pub requests: Vec<Request>,
    pub samples: Vec<ProfileSample>,
}

/// The contribution of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerPart {
    /// The number of the worker.
    pub worker: u32,
    pub pid: u32,
    /// The worker has sent everything. A worker that has died lacks its last second.
    pub complete: bool,
    /// A limit was reached: stacks are cut off, or samples left out.
    pub truncated: bool,
    /// Requests that have ended, with samples or without.
    pub requests: u64,
    /// The means for a profile that the worker lacks; empty if it takes one.
    pub lacks: String,
    /// Ticks of its clock.
    pub ticks: u64,
    /// Ticks that were left out, because the machine was too busy.
    pub late: u64,
}

/// A method, block or file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StackFrame {
    /// `Post#title`, `block in Post.all`.
    pub name: String,
    /// The file, relative to the app's folder, or beginning with the gem's name and version; null for a function in C.
    pub file: Option<String>,
}

/// A place in the tree of stacks: frame and line, and the place that has called it (null: the server).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Option<u32>, u32, u32)", into = "(Option<u32>, u32, u32)")]
pub struct Stack {
    pub parent: Option<u32>,
    pub frame: u32,
    /// 0: unknown.
    pub line: u32,
}

impl From<(Option<u32>, u32, u32)> for Stack {
    fn from((parent, frame, line): (Option<u32>, u32, u32)) -> Stack {
        Stack { parent, frame, line }
    }
}

impl From<Stack> for (Option<u32>, u32, u32) {
    fn from(stack: Stack) -> Self {
        (stack.parent, stack.frame, stack.line)
    }
}

/// A request that samples belong to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The number of its worker.
    pub worker: u32,
    /// The number of its link, and its id on that link.
    pub link: u32,
    pub id: u32,
    pub method: String,
    pub path: String,
    /// The name of the app's route, or the method and the folded path: `posts#show`, `GET /posts/:id`.
    pub route: String,
    /// How long the app took; null if the request had not ended.
    pub ms: Option<f64>,
}

/// Time spent at a place: stack (null: unknown), state, request (null: unknown), microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct ProfileSample {
    pub stack: Option<u32>,
    pub state: State,
    pub request: Option<u32>,
    pub us: u64,
}

type Row = (Option<u32>, State, Option<u32>, u64);

impl From<Row> for ProfileSample {
    fn from((stack, state, request, us): Row) -> ProfileSample {
        ProfileSample { stack, state, request, us }
    }
}

impl From<ProfileSample> for Row {
    fn from(sample: ProfileSample) -> Self {
        (sample.stack, sample.state, sample.request, sample.us)
    }
}

/// The version that this crate writes.
pub(crate) const VERSION: u32 = 1;

impl Profile {
    /// Reads a document, and checks that its numbers refer to what there is.
    ///
    /// # Errors
    /// The text is not a profile, or of another version.
    pub fn read(text: &str) -> Result<Profile, String> {
        let profile: Profile =
            serde_json::from_str(text).map_err(|error| format!("this is no profile: {error}"))?;
        if profile.version != VERSION {
            return Err(format!("this is a profile of version {}, not {VERSION}", profile.version));
        }
        let below = |number: Option<u32>, len: usize| number.is_none_or(|number| (number as usize) < len);
        let (frames, stacks, requests) = (profile.frames.len(), profile.stacks.len(), profile.requests.len());
        let is_tree = profile
            .stacks
            .iter()
            .enumerate()
            .all(|(at, stack)| below(stack.parent, at) && below(Some(stack.frame), frames));
        let is_whole = profile
            .samples
            .iter()
            .all(|sample| below(sample.stack, stacks) && below(sample.request, requests));
        if is_tree && is_whole { Ok(profile) } else { Err("this profile refers to what it lacks".to_owned()) }
    }
}
