//! The published tables: shape, requests per second, memory in MiB.

use planner::{Cell, Shape};

pub struct Table {
    pub name: &'static str,
    rows: &'static [(u32, u32, f64, f64)],
}

/// An app that sleeps 40 to 200 ms, one that sorts 100,000 numbers, and one that does either.
pub const TABLES: [Table; 3] = [
    Table {
        name: "I/O",
        rows: &[
            (1, 1, 8.5, 21.0),
            (1, 10, 81.0, 21.0),
            (1, 100, 211.0, 24.0),
            (2, 1, 17.0, 36.0),
            (2, 10, 156.0, 36.0),
            (10, 1, 81.0, 93.0),
            (10, 10, 217.0, 98.0),
        ],
    },
    Table {
        name: "CPU",
        rows: &[
            (1, 1, 37.0, 81.0),
            (1, 10, 35.0, 78.0),
            (1, 100, 36.0, 113.0),
            (2, 1, 69.0, 170.0),
            (2, 10, 67.0, 135.0),
            (10, 1, 70.0, 637.0),
            (10, 10, 66.0, 735.0),
        ],
    },
    Table {
        name: "mix",
        rows: &[
            (1, 1, 11.0, 95.0),
            (1, 10, 85.0, 93.0),
            (1, 100, 98.0, 119.0),
            (2, 1, 22.0, 161.0),
            (2, 10, 144.0, 167.0),
            (10, 1, 105.0, 310.0),
        ],
    },
];

impl Table {
    pub fn cells(&self) -> Vec<Cell> {
        self.rows.iter().map(cell).collect()
    }

    pub fn cell(&self, shape: Shape) -> Cell {
        self.cells().into_iter().find(|cell| cell.shape() == shape).expect("the table has that shape")
    }
}

fn cell(&(processes, threads, rate_per_s, mib): &(u32, u32, f64, f64)) -> Cell {
    Cell {
        processes,
        threads,
        users: 30,
        requests: 600,
        seconds: 600.0 / rate_per_s,
        rate_per_s,
        pss_bytes: (mib * 1_048_576.0) as u64,
        cores: Some(2.0),
        repeats: 1,
        ..Cell::default()
    }
}
