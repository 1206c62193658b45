//! Measures the cost of a step without a network: `cargo run --release -p mruby --example cost`.

use mruby::{Interned, StepResult, Tape, TapeValue, Text, Vm, VmLimits};
use std::error::Error;
use std::time::Instant;

const KEYS: [&str; 12] = [
    "REQUEST_METHOD",
    "SCRIPT_NAME",
    "PATH_INFO",
    "QUERY_STRING",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "REMOTE_ADDR",
    "HTTP_HOST",
    "HTTP_USER_AGENT",
    "HTTP_ACCEPT",
    "rack.url_scheme",
];

const APPS: [(&str, &str); 3] = [
    ("hello", "lambda { |env| [200, {'content-type' => 'text/plain'}, ['Hello']] }"),
    ("one wait", "lambda { |env| Rt.wait!(:w, 1); [200, {'content-type' => 'text/plain'}, ['Hello']] }"),
    (
        "two waits",
        "lambda { |env| Rt.wait!(:w, 1); Rt.wait!(:w, 1); [200, {'content-type' => 'text/plain'}, ['Hello']] }",
    ),
];

/// The handler's entry point in Ruby.
const RESPOND: &str = "module Rt; def self.respond(app, env, _); response = app.call(env); plain(response) || response; end; end";

fn main() -> Result<(), Box<dyn Error>> {
    let limits = VmLimits { heap: 256 << 20, step: 64 << 20 };
    let mut vm = Vm::open(
        limits,
        Box::new(|_, args, tape| {
            tape.value(&TapeValue::Array(args.to_vec()));
        }),
    )?;
    vm.eval(RESPOND, "cost.rb").map_err(|error| error.to_string())?;
    let job = vm.intern(b"load_app").ok_or("no memory")?;
    let keys: Option<Vec<Interned>> = KEYS.iter().map(|key| vm.intern(key.as_bytes())).collect();
    let keys = keys.ok_or("no memory")?;
    let env = || keys.iter().map(|key| (Text::Interned(*key), Text::Bytes(b"/some/value")));
    let mut answer = Tape::new();
    answer.int(1);
    let rounds = 300_000;
    for (number, (name, code)) in APPS.iter().enumerate() {
        let mut args = Tape::new();
        args.array(2).str(code).str("cost.rb");
        let booted = vm.start(0, job, &args);
        assert!(matches!(booted, StepResult::Done), "{booted:?}");
        let begun = Instant::now();
        for _ in 0..rounds {
            let mut step = vm.request(0, number as u32, env(), false);
            while let StepResult::Wait = step {
                step = vm.resume(0, &answer);
            }
            assert!(matches!(step, StepResult::Done), "{step:?}");
        }
        println!("{name}: {} ns", begun.elapsed().as_nanos() / rounds);
    }
    let (before, waiting) = (vm.heap(), 10_000);
    for task in 1..=waiting {
        vm.request(task, 1, env(), false);
    }
    vm.collect();
    println!("{} bytes of heap for each task that waits", (vm.heap() - before) / waiting as usize);
    Ok(())
}
