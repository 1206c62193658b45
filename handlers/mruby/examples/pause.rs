//! Measures the time of a step while many tasks wait, for choosing the collector's settings: `pause [WAITING
//! [STEPS [RUBY]]]`.
//!
//! Runs in one process, because the network's variance would hide the collector's pauses. RUBY is evaluated
//! first, for example `GC.generational_mode=true; GC.step_ratio=400`.

use mruby::{StepResult, Tape, Text, Vm, VmLimits};
use std::time::{Duration, Instant};

const HANDLERS: &str = "
module Rt
  def self.respond(app, env, _)
    app.call(env)
  end
  apps << lambda { |env| [200, { 'Content-Type' => 'text/plain' }, ['Hello ' + env['PATH_INFO']]] }
  apps << lambda { |env| Rt.wait!(:sleep, 1); [200, {}, []] }
end
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let waiting: u32 = args.next().map_or(Ok(10_000), |text| text.parse())?;
    let steps: usize = args.next().map_or(Ok(200_000), |text| text.parse())?;
    let ruby = args.next().unwrap_or_default();
    let mut vm = Vm::open(
        VmLimits { heap: 1 << 30, step: 1 << 30 },
        Box::new(|_, _, tape| {
            tape.nil();
        }),
    )?;
    vm.eval(HANDLERS, "handlers.rb").map_err(|error| error.to_string())?;
    vm.eval(&ruby, "settings.rb").map_err(|error| error.to_string())?;
    let empty = vm.heap();
    let keys = [
        "REQUEST_METHOD",
        "PATH_INFO",
        "QUERY_STRING",
        "SERVER_NAME",
        "SERVER_PORT",
        "HTTP_HOST",
        "HTTP_ACCEPT",
    ];
    let keys: Vec<_> = keys.iter().filter_map(|key| vm.intern(key.as_bytes())).collect();
    let env = || keys.iter().map(|key| (Text::Interned(*key), Text::Bytes(b"some text")));
    let mut nil = Tape::new();
    nil.nil();

    let mut begun = Vec::new();
    for task in 1..=waiting {
        let at = Instant::now();
        if !matches!(vm.request(task, 1, env(), false), StepResult::Wait) {
            return Err("the handler does not wait".into());
        }
        begun.push(at.elapsed());
    }
    let each = if waiting == 0 { 0 } else { (vm.heap() - empty) / waiting as usize };
    let mut hello = Vec::with_capacity(steps);
    for _ in 0..steps {
        let at = Instant::now();
        if !matches!(vm.request(0, 0, env(), false), StepResult::Done) {
            return Err("hello fails".into());
        }
        hello.push(at.elapsed());
    }
    let mut ended = Vec::new();
    for task in 1..=waiting {
        let at = Instant::now();
        vm.resume(task, &nil);
        ended.push(at.elapsed());
    }
    println!("{waiting} waiting, {each} bytes of heap each");
    tell("begins to wait", begun);
    tell("hello", hello);
    tell("ends its wait", ended);
    let at = Instant::now();
    vm.collect();
    println!("a whole collection afterwards: {:.3} ms", at.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let Some(most) = times.last() else { return };
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    let p99 = times[times.len() * 99 / 100];
    println!("{what}: mean {mean:.3?}, p99 {p99:.3?}, longest {most:.3?}");
}
