//! Tests the number of workers under all kinds of load, in a small model in which requests wait, compute, or
//! contend for the GVL.

use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// A server and its machine.
struct World {
    growth: Growth,
    now: Instant,
    begun: Instant,
    workers: usize,
    threads: u32,
    /// The CPUs of the machine, and how many of them other processes use.
    cpus: f64,
    others: f64,
    /// The threads that requests would keep busy, and the CPU that one of them uses.
    demand: f64,
    cpu_each: f64,
    memory: Memory,
    each: u64,
    /// The seconds since the beginning, the number of workers after each step, and the reason.
    steps: Vec<(u64, usize, String)>,
    said: Vec<String>,
}

impl World {
    fn new(min: usize, max: usize) -> World {
        let now = Instant::now();
        World {
            growth: Growth::new(Range { min, max }),
            now,
            begun: now,
            workers: min,
            threads: 3,
            cpus: 4.0,
            others: 0.0,
            demand: 0.0,
            cpu_each: 0.1,
            memory: Memory::default(),
            each: 100 * MIB,
            steps: Vec::new(),
            said: Vec::new(),
        }
    }

    fn sample(&self) -> Sample {
        let seats = self.workers as f64 * f64::from(self.threads);
        let busy = self.demand.min(seats);
        let worker_cpus = (busy * self.cpu_each).min(self.workers as f64).min(self.cpus - self.others);
        let mut sample = Sample {
            busy: busy.round() as u32,
            seats: seats as u32,
            worker_cpus: Some(worker_cpus),
            worker_share: Some(worker_cpus / self.cpus),
            idle_cpu: Some(((self.cpus - self.others - worker_cpus) / self.cpus).max(0.0)),
            ..Sample::default()
        };
        let waited = if self.demand > seats { Duration::from_millis(300) } else { Duration::ZERO };
        (0..10).for_each(|_| sample.load.waits.record(waited));
        if busy * self.cpu_each > self.workers as f64 {
            // The threads of one process take turns.
            let share = 1.0 - self.workers as f64 / (busy * self.cpu_each);
            let load = &mut sample.load;
            (load.measured, load.app_us, load.gvl_us) = (10, 1_000_000, (share * 1e6) as u64);
        }
        if self.memory.limit.is_some() {
            sample.memory = Memory {
                taken: self.memory.taken + self.each * self.workers as u64,
                worker: Some(self.each),
                ..self.memory
            };
        }
        sample
    }

    fn seconds(&self) -> u64 {
        self.now.duration_since(self.begun).as_secs()
    }

    /// Lets a second pass.
    fn pass(&mut self, sample: Sample) {
        self.now += SECOND;
        match self.growth.observe(sample, self.workers, self.now) {
            None => {}
            Some(Decision::Stay(why)) => self.said.push(why),
            Some(Decision::Grow(why)) => {
                self.workers += 1;
                self.steps.push((self.seconds(), self.workers, why));
            }
            Some(Decision::Shrink(why)) => {
                self.workers -= 1;
                self.steps.push((self.seconds(), self.workers, why));
            }
        }
    }

    fn run(&mut self, seconds: u64) -> &mut World {
        (0..seconds).for_each(|_| self.pass(self.sample()));
        self
    }

    fn path(&self) -> Vec<(u64, usize)> {
        self.steps.iter().map(|(at, workers, _)| (*at, *workers)).collect()
    }
}

#[test]
fn it_grows_while_requests_wait_and_says_why() {
    let mut world = World::new(2, 4);
    world.demand = 30.0;
    world.run(120);
    assert_eq!(world.path(), [(3, 3), (13, 4)], "at once, then every ten seconds, and not beyond the range");
    assert_eq!(world.steps[0].2, "requests waited 304 ms (p95) while 85 % of the CPU was idle");
    assert_eq!(world.said, <[String; 0]>::default());
}

#[test]
fn it_shrinks_slowly_when_fewer_would_do() {
    let mut world = World::new(1, 4);
    world.demand = 30.0;
    world.run(40);
    assert_eq!(world.workers, 4);
    world.demand = 1.0;
    world.run(400);
    let shrinks = world.path()[3..].to_vec();
    assert_eq!(shrinks.iter().map(|(_, workers)| *workers).collect::<Vec<_>>(), [3, 2, 1]);
    assert!(shrinks[0].0 >= 100, "{shrinks:?}");
    assert!(shrinks.windows(2).all(|two| two[1].0 - two[0].0 >= 60), "{shrinks:?}");
    let why = &world.steps[3].2;
    assert!(
        why.starts_with("no request waited for 60 s, and ")
            && why.ends_with(" of 12 threads are busy on average"),
        "{why}"
    );
}

#[test]
fn a_load_that_needs_them_keeps_them() {
    let mut world = World::new(1, 8);
    world.demand = 11.0;
    world.run(3_600);
    assert_eq!((world.workers, world.steps.len()), (4, 3), "{:?}", world.steps);
    // Few threads, but each needs a processor: fewer processes would contend for the GVL.
    let mut world = World::new(1, 8);
    (world.demand, world.cpu_each, world.cpus) = (3.0, 1.0, 8.0);
    world.run(3_600);
    assert_eq!((world.workers, world.steps.len()), (3, 2), "{:?}", world.steps);
    assert!(world.steps[0].2.starts_with("threads waited for the GVL for 67 % of the time in the app while"));
}

#[test]
fn a_single_slow_moment_is_no_reason() {
    let mut world = World::new(1, 8);
    for _ in 0..60 {
        world.run(4);
        world.demand = 30.0;
        world.run(2);
        world.demand = 0.0;
    }
    assert_eq!(world.steps, []);
}

#[test]
fn a_request_that_waits_for_ever_is_a_reason() {
    let mut world = World::new(1, 2);
    for waited in 0..10 {
        world.pass(Sample { oldest: SECOND * waited, idle_cpu: Some(0.5), ..Sample::default() });
    }
    let why = "the first request of the queue has been waiting for 3000 ms while 50 % of the CPU was idle";
    assert_eq!(world.steps, [(4, 2, why.to_owned())]);
}

#[test]
fn without_idle_cpu_it_stays_and_says_so_once_each_time() {
    let mut world = World::new(2, 8);
    (world.demand, world.cpu_each, world.cpus) = (30.0, 1.0, 1.0);
    world.run(300);
    assert_eq!(world.steps, []);
    assert_eq!(
        world.said,
        ["requests waited 304 ms (p95), but only 0 % of the CPU is idle, so another worker would not help"]
    );
    world.demand = 0.0;
    world.run(30);
    world.demand = 30.0;
    world.run(30);
    assert_eq!(world.said.len(), 1, "the same episode");
    world.demand = 0.0;
    world.run(90);
    world.demand = 30.0;
    world.run(30);
    assert_eq!(world.said.len(), 2);
    world.cpus = 4.0;
    world.run(30);
    assert!(world.workers > 2);
}

#[test]
fn cpu_that_others_use_up_does_not_stop_workers_that_wait() {
    let mut world = World::new(2, 3);
    (world.demand, world.cpu_each, world.others) = (30.0, 0.01, 3.9);
    world.run(10);
    let why = "requests waited 304 ms (p95) while the workers used 2 % of the CPU, and others the rest";
    assert_eq!(world.steps, [(3, 3, why.to_owned())]);
}

#[test]
fn memory_is_a_bound() {
    let mut world = World::new(1, 8);
    world.demand = 100.0;
    world.memory = Memory { taken: 80 * MIB, limit: Some(512 * MIB), ..Memory::default() };
    world.run(300);
    // 80 + 3 x 100 is 380. One more worker would make it 480, but only 460 may be used.
    assert_eq!((world.workers, world.said.len()), (3, 1), "{:?} {:?}", world.steps, world.said);
    assert!(world.said[0].contains(
        "there is no memory for another worker of 100.0 MiB: all processes take 380.0 MiB of 512.0 MiB"
    ));
    // The pod gets more memory, and then less.
    world.memory.limit = Some(1024 * MIB);
    world.run(300);
    assert_eq!(world.workers, 8);
    world.memory.limit = Some(600 * MIB);
    world.run(70);
    assert_eq!(world.workers, 6, "one a minute");
    world.run(600);
    assert_eq!(world.workers, 4, "80 + 4 x 100 of the 570 that there may be");
    let why = &world.steps[world.steps.len() - 1].2;
    assert_eq!(why, "all processes use 580.0 MiB, above the threshold of 570.0 MiB (600.0 MiB in total)");
}

#[test]
fn before_the_memory_is_known_nothing_is_added() {
    let mut world = World::new(1, 8);
    world.demand = 100.0;
    let unknown = Memory { limit: Some(512 * MIB), ..Memory::default() };
    for _ in 0..60 {
        let sample = Sample { memory: unknown, ..world.sample() };
        world.pass(sample);
    }
    assert_eq!((world.steps.len(), world.said.len()), (0, 0));
}

#[test]
fn what_the_machine_has_left_is_a_bound_too() {
    let mut world = World::new(1, 8);
    world.demand = 100.0;
    world.memory = Memory { limit: Some(1000 * MIB), available: Some(150 * MIB), ..Memory::default() };
    world.run(30);
    assert_eq!(world.steps, []);
    assert!(
        world.said[0]
            .ends_with("all processes take 100.0 MiB of 1000.0 MiB, and the machine has 150.0 MiB left")
    );
    world.memory.available = Some(250 * MIB);
    world.run(10);
    assert_eq!(world.workers, 2);
}

#[test]
fn memory_never_costs_the_minimum() {
    let mut world = World::new(3, 8);
    world.memory = Memory { taken: 0, limit: Some(128 * MIB), ..Memory::default() };
    world.run(600);
    assert_eq!((world.workers, world.steps.len()), (3, 0));
}

#[test]
fn going_up_and_down_is_slowed_down() {
    let mut world = World::new(1, 2);
    // Two minutes of each load.
    for _ in 0..60 {
        world.demand = 6.0;
        world.run(30);
        world.demand = 0.5;
        world.run(90);
    }
    let shrinks: Vec<u64> =
        world.path().iter().filter(|(_, workers)| *workers == 1).map(|(at, _)| *at).collect();
    assert!(shrinks.len() <= 6 && shrinks.len() >= 2, "{:?}", world.path());
    assert!(shrinks.windows(3).all(|three| three[2] - three[1] >= three[1] - three[0]), "{shrinks:?}");
}

#[test]
fn what_an_operator_has_ordered_stays() {
    let mut world = World::new(1, 8);
    world.demand = 100.0;
    world.growth.pin();
    world.run(600);
    assert_eq!(world.steps, []);
    world.growth.set_range(Range { min: 1, max: 2 });
    world.run(600);
    assert_eq!(world.workers, 2);
    assert!(!Growth::new(Range { min: 3, max: 3 }).is_active());
}

#[test]
fn what_was_seen_before_a_change_does_not_count() {
    let mut world = World::new(1, 8);
    world.demand = 100.0;
    for _ in 0..100 {
        world.run(2);
        world.growth.disturbed();
    }
    assert_eq!(world.steps, []);
}

#[test]
fn a_system_that_says_nothing_of_its_cpu_does_not_stop_it() {
    let mut world = World::new(1, 2);
    world.demand = 100.0;
    for _ in 0..10 {
        let sample = Sample { idle_cpu: None, worker_cpus: None, worker_share: None, ..world.sample() };
        world.pass(sample);
    }
    assert_eq!(world.steps, [(3, 2, "requests waited 304 ms (p95)".to_owned())]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Under any load the number stays in the range, steps keep their distance, and no worker is added
    /// without CPU or memory.
    #[test]
    fn the_rules_hold_under_any_load(
        min in 1usize..4,
        more in 0usize..6,
        phases in proptest::collection::vec((0.0f64..60.0, 0.0f64..1.0, 0.0f64..4.0, 100u64..2_000, 1u64..200), 1..12),
    ) {
        let mut world = World::new(min, min + more);
        for (demand, cpu_each, others, limit, seconds) in phases {
            (world.demand, world.cpu_each, world.others) = (demand, cpu_each, others);
            world.memory = Memory { taken: 50 * MIB, limit: Some(limit * MIB), ..Memory::default() };
            for _ in 0..seconds {
                let (before, sample) = (world.workers, world.sample());
                let room = sample.memory.has_room_for(1);
                world.pass(sample);
                prop_assert!((min..=min + more).contains(&world.workers));
                prop_assert!(world.workers <= before || room == Some(true));
            }
        }
        let mut last = None;
        for (at, workers) in world.path() {
            if let Some((before_at, before)) = last {
                prop_assert!(at - before_at >= if workers > before { 10 } else { 60 }, "{:?}", world.path());
            }
            last = Some((at, workers));
        }
    }

    /// A constant load leads to a constant number.
    #[test]
    fn a_constant_load_ends_the_changes(demand in 0.0f64..40.0, cpu_each in 0.0f64..1.0, cpus in 1.0f64..16.0) {
        let mut world = World::new(1, 12);
        (world.demand, world.cpu_each, world.cpus) = (demand, cpu_each, cpus);
        world.run(1_800);
        let steps = world.steps.len();
        world.run(1_800);
        prop_assert_eq!(world.steps.len(), steps, "{:?}", world.steps);
    }
}
