//! A profile for speedscope: its file format, of the type `sampled`. All samples are one profile, and one for each state follows.

use profile::{Profile, State};
use serde_json::{Value, json};

pub(crate) fn render(profile: &Profile) -> String {
    let frames: Vec<Value> = profile
        .stacks
        .iter()
        .map(|stack| {
            let frame = &profile.frames[stack.frame as usize];
            let mut value = json!({ "name": frame.name });
            if let Some(file) = &frame.file {
                value["file"] = json!(file);
                value["line"] = json!(stack.line);
            }
            value
        })
        .collect();
    // Places with the same frame and line are one frame.
    let mut numbers = std::collections::HashMap::new();
    let mut shared = Vec::new();
    let of_stack: Vec<usize> = profile
        .stacks
        .iter()
        .zip(frames)
        .map(|(stack, frame)| {
            *numbers.entry((stack.frame, stack.line)).or_insert_with(|| {
                shared.push(frame);
                shared.len() - 1
            })
        })
        .collect();
    let of_states = State::ALL.iter().map(|state| sampled(profile, &of_stack, state.name(), Some(*state)));
    let mut profiles = vec![sampled(profile, &of_stack, "all", None)];
    profiles
        .extend(of_states.filter(|one| one["samples"].as_array().is_some_and(|samples| !samples.is_empty())));
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "firebrick",
        "name": format!("{} {}", profile.dir, profile.started_at),
        "activeProfileIndex": 0,
        "shared": { "frames": shared },
        "profiles": profiles,
    });
    file.to_string()
}

fn sampled(profile: &Profile, of_stack: &[usize], name: &str, state: Option<State>) -> Value {
    let chosen = profile.samples.iter().filter(|sample| state.is_none_or(|state| sample.state == state));
    let (mut samples, mut weights, mut end) = (Vec::new(), Vec::new(), 0);
    for sample in chosen {
        let (mut stack, mut at) = (Vec::new(), sample.stack);
        while let Some(number) = at {
            stack.push(of_stack[number as usize]);
            at = profile.stacks[number as usize].parent;
        }
        stack.reverse();
        samples.push(stack);
        weights.push(sample.us);
        end += sample.us;
    }
    json!({
        "type": "sampled", "name": name, "unit": "microseconds", "startValue": 0, "endValue": end,
        "samples": samples, "weights": weights,
    })
}
