//! Tests of tasks while the collector runs all the time: however they are interleaved, each gets its own results.
#![cfg(test)]

use mruby::{Exception, Interned, StepResult, Tape, TapeValue, Vm, VmLimits};

const JOBS: &str = "
class Slow
  include Enumerable
  def initialize(n)
    @n = n
  end

  def each
    3.times { |i| yield Rt.wait!(:give, @n + i) }
  end
end

module Rt
  @cleaned = 0

  def self.plainly(n)
    a = wait!(:give, n)
    b = wait!(:give, n + 1)
    [a, b, 'text ' * 3].inspect
  end

  def self.nested(n)
    fiber = Fiber.new { |x| Fiber.yield(wait!(:give, x)); Fiber.new { wait!(:give, n) }.resume }
    [fiber.resume(n), fiber.resume].inspect
  end

  def self.each_slowly(n)
    Slow.new(n).map { |x| x.to_s * 2 }.inspect
  end

  def self.carefully(n)
    begin
      wait!(:give, n)
    ensure
      @cleaned += 1
      wait!(:give, n)
    end
  end

  def self.cleaned
    @cleaned
  end
end
";

/// Returns the result of the job if each wait returns its argument.
fn wanted(job: usize, n: i64) -> String {
    match job {
        0 => format!("[{n}, {}, \"text text text \"]", n + 1),
        1 => format!("[{n}, {n}]"),
        2 => format!("[\"{n}{n}\", \"{0}{0}\", \"{1}{1}\"]", n + 1, n + 2),
        _ => n.to_string(),
    }
}

/// Pseudo-random numbers, equal in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The expected state of a task.
struct Task {
    job: usize,
    n: i64,
    /// The argument of its last wait; `None` if the task is idle.
    asked: Option<i64>,
    given_up: bool,
}

struct Stress {
    vm: Vm,
    jobs: Vec<Interned>,
    tasks: Vec<Task>,
    ended: usize,
}

impl Stress {
    fn begin(&mut self, task: usize, job: usize, n: i64) {
        let mut args = Tape::new();
        args.array(1).int(n);
        self.tasks[task] = Task { job, n, asked: None, given_up: false };
        let step = self.vm.start(task as u32, self.jobs[job], &args);
        self.after(task, step);
    }

    fn answer(&mut self, task: usize, asked: i64) {
        let mut answer = Tape::new();
        answer.int(asked);
        let step = self.vm.resume(task as u32, &answer);
        self.after(task, step);
    }

    fn give_up(&mut self, task: usize) {
        let mut fault = Tape::new();
        fault.fault("KeyError", "given up");
        self.tasks[task].given_up = true;
        let step = self.vm.resume(task as u32, &fault);
        self.after(task, step);
    }

    fn after(&mut self, number: usize, step: StepResult) {
        let task = &mut self.tasks[number];
        match step {
            StepResult::Wait => {
                task.asked = match self.vm.out() {
                    TapeValue::Array(parts) => parts.get(1).and_then(TapeValue::int),
                    other => panic!("task {number} waits for {other:?}"),
                }
            }
            StepResult::Done => {
                assert!(!task.given_up, "task {number} was given up and gave something");
                let text = match self.vm.out() {
                    TapeValue::Str(text) => String::from_utf8_lossy(text).into_owned(),
                    TapeValue::Int(number) => number.to_string(),
                    other => panic!("task {number} gave {other:?}"),
                };
                assert_eq!(text, wanted(task.job, task.n));
                task.asked = None;
                self.ended += 1;
            }
            StepResult::Raised(Exception { class, .. }) if task.given_up && class == "KeyError" => {
                task.asked = None
            }
            other => panic!("task {number}: {other:?}"),
        }
    }
}

fn stress(settings: &str, turns: usize, collect_each: u64) {
    if Vm::version().is_none() {
        return;
    }
    let nobody = Box::new(|_: u32, _: &[TapeValue<'_>], tape: &mut Tape| {
        tape.nil();
    });
    let mut vm = Vm::open(VmLimits { heap: 256 << 20, step: 64 << 20 }, nobody).expect("a VM");
    vm.eval(JOBS, "jobs.rb").expect("Ruby");
    vm.eval(settings, "settings.rb").expect("Ruby");
    let names = ["plainly", "nested", "each_slowly", "carefully"];
    let jobs = names.iter().map(|name| vm.intern(name.as_bytes()).expect("memory")).collect();
    let tasks = (0..100).map(|_| Task { job: 0, n: 0, asked: None, given_up: false }).collect();
    let mut stress = Stress { vm, jobs, tasks, ended: 0 };
    let mut dice = Dice(7);
    for turn in 0..turns {
        let task = dice.roll(100) as usize;
        match stress.tasks[task].asked {
            None => stress.begin(task, dice.roll(4) as usize, turn as i64),
            Some(_) if dice.roll(50) == 0 => {
                stress.vm.abandon(task as u32);
                stress.tasks[task].asked = None;
            }
            Some(_) if dice.roll(20) == 0 => stress.give_up(task),
            Some(asked) => stress.answer(task, asked),
        }
        if dice.roll(collect_each) == 0 {
            stress.vm.collect();
        }
    }
    assert!(stress.ended > turns / 20, "only {} tasks came to their end", stress.ended);
}

#[test]
fn tasks_keep_their_state_during_full_collections() {
    stress("", 3_000, 3);
}

#[test]
fn tasks_keep_their_state_while_the_collector_always_runs() {
    stress("GC.interval_ratio = 100; GC.step_ratio = 1", 30_000, 1_000);
    stress("GC.generational_mode = true; GC.interval_ratio = 100", 30_000, 1_000);
    stress("GC.generational_mode = false; GC.step_ratio = 10_000", 30_000, 1_000);
}

#[test]
fn a_vm_with_waiting_tasks_can_be_closed() {
    for _ in 0..20 {
        stress("", 150, 40);
    }
}
