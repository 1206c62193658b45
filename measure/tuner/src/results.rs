//! The cells that were measured, and which of them a recommendation may be based on.

use crate::libraries::Library;
use crate::server::ServerKind;
use planner::{Cell, LimitedBy, Prediction};

/// The number of disturbed full measurements after which the search ends.
const DISTURBED_AT_LEAST: usize = 2;

/// A cell of the table.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) server: ServerKind,
    pub(crate) cell: Cell,
    /// Whether this is a short look, which is used only for the prediction.
    pub(crate) look: bool,
    /// The accepted spread.
    pub(crate) wanted_spread: f64,
    /// The cell corrected for the load of other programs.
    pub(crate) undisturbed: Cell,
    /// The most frequent error.
    pub(crate) error_text: Option<String>,
    /// Whether some responses were redirects.
    pub(crate) redirects: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Results {
    /// In the order of measurement; one entry for each server and shape, and for each look.
    pub(crate) measured: Vec<Measured>,
    /// Predictions for the shapes that were not measured.
    pub(crate) predictions: Vec<Prediction>,
    /// Whether the user stopped the measurements.
    pub(crate) stopped: bool,
    pub(crate) seconds: f64,
    /// The number of shapes considered.
    pub(crate) candidates: usize,
    /// The behaviour of the app's libraries with fibers; empty if no server has reported it.
    pub(crate) libraries: Vec<Library>,
}

impl Results {
    /// Returns Firebrick's cells on which a recommendation may be based: measured in full, or crashed.
    pub(crate) fn firm(&self) -> Vec<Cell> {
        let ours = self.measured.iter().filter(|one| one.server == ServerKind::Firebrick);
        let firm = ours.filter(|one| !one.look || one.cell.crashed.is_some());
        with_the_fastest(usable(firm.map(|one| one.cell.clone()).collect()))
    }

    /// Returns all of Firebrick's cells, as input of prediction and diagnosis.
    pub(crate) fn usable(&self) -> Vec<Cell> {
        let ours = self.measured.iter().filter(|one| one.server == ServerKind::Firebrick);
        usable(ours.map(|one| one.undisturbed.clone()).collect())
    }

    /// Returns why the measurements say nothing about the app: other programs disturbed most of them.
    pub(crate) fn noise(&self) -> Option<String> {
        let ours = self.measured.iter().filter(|one| one.server == ServerKind::Firebrick && !one.look);
        // A shape whose requests all fail has another trouble.
        let ran: Vec<&Measured> =
            ours.filter(|one| one.cell.crashed.is_none() && one.cell.requests > 0).collect();
        let disturbed = ran.iter().filter(|one| one.cell.limited_by == Some(LimitedBy::Machine)).count();
        (disturbed >= DISTURBED_AT_LEAST && disturbed * 2 > ran.len()).then(|| {
            format!(
                "Other programs used much of this machine's CPU during {disturbed} of {} measurements, which therefore say nothing \
                 about the app. Stop those programs and measure again, or add --noisy to use the figures all the same.",
                ran.len()
            )
        })
    }
}

/// Returns the cells for prediction and diagnosis. If other programs disturbed most of them, all are used,
/// because there is nothing better.
fn usable(mut cells: Vec<Cell>) -> Vec<Cell> {
    let tells = cells.iter().filter(|cell| cell.is_valid()).count();
    let ran = cells.iter().filter(|cell| cell.crashed.is_none()).count();
    if tells * 2 < ran {
        cells.iter_mut().for_each(|cell| cell.limited_by = None);
    }
    cells
}

/// Removes the limit of cells that are faster than all valid ones. A limited rate is the least that a shape
/// can reach, so a faster one counts, and the recommendation never contradicts the table.
fn with_the_fastest(mut cells: Vec<Cell>) -> Vec<Cell> {
    let best = cells.iter().filter(|cell| cell.is_valid()).map(|cell| cell.rate_per_s).fold(0.0, f64::max);
    let faster = |cell: &&mut Cell| cell.crashed.is_none() && cell.rate_per_s > best;
    cells.iter_mut().filter(faster).for_each(|cell| cell.limited_by = None);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_cells_are_used_if_there_are_no_better_ones() {
        let cell = |limited_by| Cell { rate_per_s: 1.0, limited_by, ..Cell::default() };
        let noisy = usable(vec![cell(Some(LimitedBy::Machine)), cell(Some(LimitedBy::Machine)), cell(None)]);
        assert!(noisy.iter().all(Cell::is_valid));
        let calm = usable(vec![cell(Some(LimitedBy::Machine)), cell(None), cell(None)]);
        assert_eq!(calm.iter().filter(|cell| cell.is_valid()).count(), 2);
    }

    #[test]
    fn a_limited_cell_that_is_faster_than_all_others_counts() {
        let cell = |rate_per_s, limited_by| Cell { rate_per_s, limited_by, ..Cell::default() };
        let machine = Some(LimitedBy::Machine);
        let generator = Some(LimitedBy::LoadGenerator);
        let cells = with_the_fastest(vec![
            cell(40.0, None),
            cell(50.0, None),
            cell(700.0, machine),
            cell(45.0, machine),
            cell(900.0, generator),
        ]);
        let valid: Vec<f64> =
            cells.iter().filter(|cell| cell.is_valid()).map(|cell| cell.rate_per_s).collect();
        assert_eq!(valid, [40.0, 50.0, 700.0, 900.0]);
    }
}
